source "$ROOT/tests/it/systemd/common.sh"

systemctl daemon-reload
systemctl start baton.service || fail "start"
# Type=notify: started means serving, on a privileged port, as an unprivileged user.
served || fail "not serving after start"
[[ $(ps -o user= -p "$(main_pid)") != root ]] || fail "runs as root"
main=$(main_pid)

configure 2000
systemctl reload baton.service || fail "a good reload"
[[ $(field "s['workers'][0]['generation']") == 2 ]] || fail "generation after the reload"

echo '{ "rules": [] }' > /etc/baton/setting.json
if systemctl reload baton.service; then fail "a bad reload was called a success"; fi
systemctl is-active -q baton.service || fail "a bad reload ended the service"
served || fail "not serving after a bad reload"
[[ $(field "s['last_transition']['result']") == failed ]] || fail "last_transition"
configure 2000

inode=$(field "s['listeners'][0]['inode']")
old=$(serving)
cp /usr/bin/baton /usr/bin/baton.new && mv /usr/bin/baton.new /usr/bin/baton
baton upgrade --runtime-dir /run/baton || fail "upgrade"
[[ $(serving) != "$old" ]] || fail "the same worker serves after the upgrade"
[[ $(main_pid) == "$main" ]] || fail "the main process changed"
[[ $(field "s['listeners'][0]['inode']") == "$inode" ]] || fail "another socket"
served || fail "not serving after the upgrade"

systemctl stop baton.service || fail "stop"
[[ $(systemctl show -p Result --value baton.service) == success ]] || fail "stop was no success"
[[ -z $(pgrep '^baton' || true) ]] || fail "a process is left"
echo passed
