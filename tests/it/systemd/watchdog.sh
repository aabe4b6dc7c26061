source "$ROOT/tests/it/systemd/common.sh"

mkdir -p /etc/systemd/system/baton.service.d
printf '[Service]\nWatchdogSec=1s\nStartLimitIntervalSec=0\n' > /etc/systemd/system/baton.service.d/fast.conf
systemctl daemon-reload
systemctl start baton.service || fail "start"
served || fail "not serving"

# The watchdog is fed: after some periods the same process is still there.
main=$(main_pid)
for _ in 1 2 3; do
  before=$(accepted); served || fail "not serving"; sleep 1
done
[[ $(main_pid) == "$main" ]] || fail "the watchdog ended a healthy supervisor"

# A hung one is replaced by systemd.
kill -STOP "$main"
replaced() { local now; now=$(main_pid); [[ $now != 0 && $now != "$main" ]] && served; }
until_ok replaced
(( $(accepted) > before )) || fail "counters fell"

# So is a killed one, and no worker of the old instance stays.
main=$(main_pid)
kill -KILL "$main"
until_ok replaced
[[ $(systemctl show -p TasksCurrent --value baton.service) -lt 40 ]] || fail "tasks pile up"
[[ $(pgrep -cx baton) -ge 1 ]] || fail "nothing runs"
systemctl stop baton.service || fail "stop"
echo passed
