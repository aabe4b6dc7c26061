source "$ROOT/tests/it/systemd/common.sh"

drop_in fast '[Service]' WatchdogSec=5s '[Unit]' StartLimitIntervalSec=0
systemctl start baton.service || fail "start"
served || fail "not serving"

# The watchdog is fed: systemd has seen it several times, and the same process is still there.
main=$(main_pid)
before=$(accepted)
fed() { systemctl show -p WatchdogTimestampMonotonic --value baton.service; }
for _ in 1 2 3; do
  last=$(fed)
  later() { (( $(fed) > last )); }
  until_ok later
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
only_ours() { [[ $(pgrep -cx baton-worker) -eq 1 && $(pgrep -cx baton-keeper) -eq 1 ]]; }
until_ok only_ours
systemctl stop baton.service || fail "stop"
echo passed
