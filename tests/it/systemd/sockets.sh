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
told() { [[ $(journalctl -u baton.service --no-pager) == *7777* ]]; }
until_ok told

# A configuration that wants it after all gets it with the next start, even one that finds the
# worker alive and has nothing to wait for before it is ready.
given=$(inode_of 127.0.0.1:7777)
drop_in keep '[Service]' KillMode=process RestartKillSignal=SIGUSR1
worker=$(serving)
sed -i 's/"rules": \[ /&{ "name": "late", "listen": "127.0.0.1:7777", "mode": "normal", "targets": [ { "address": "127.0.0.1:9000" } ] }, /' /etc/baton/setting.json
systemctl restart baton.service || fail "restart"
late() { [[ $(field "[l['inode'] for l in s['listeners'] if l['rule']=='late'][0]") == "$given" ]]; }
until_ok late
[[ $(serving) == "$worker" ]] || fail "another worker serves"
echo passed
