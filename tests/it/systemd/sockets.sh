source "$ROOT/tests/it/systemd/common.sh"

cat > /etc/systemd/system/baton.socket <<'UNIT'
[Socket]
ListenStream=127.0.0.1:80
ListenStream=127.0.0.1:7777
UNIT
systemctl daemon-reload
systemctl start baton.socket || fail "start the socket unit"
inode_of() { ss -ltneH "src $1" | sed -n 's/.*ino:\([0-9]*\).*/\1/p'; }
given=$(inode_of 127.0.0.1:80)
[[ -n $given ]] || fail "no socket"

# The connection itself starts the service.
served || fail "not serving through the activated socket"
[[ $(field "s['listeners'][0]['inode']") == "$given" ]] ||
  fail "adopted $(field "s['listeners'][0]['inode']"), given $given"
journalctl -u baton.service --no-pager | grep -q 7777 || fail "says nothing of the unclaimed socket"
echo passed
