source "$ROOT/tests/it/systemd/common.sh"

# An upstream that answers line by line, for a connection that lasts.
cat > /srv/echo.py <<'PY'
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
Server(("127.0.0.1", 9001), Echo).serve_forever()
PY
systemd-run -q --unit=echo "$(command -v python3)" /srv/echo.py
rule() { # NAME PORT TARGET-PORT
  echo "{ \"name\": \"$1\", \"listen\": \"127.0.0.1:$2\", \"mode\": \"normal\","
  echo "  \"targets\": [ { \"address\": \"127.0.0.1:$3\" } ] }"
}
rules() { # RULE...
  local IFS=,
  echo "{ \"supervisor\": { \"watch\": \"0s\", \"drainTimeout\": \"1s\" }, \"rules\": [ $* ] }" \
    > /etc/baton/setting.json
}
web=$(rule web 80 9000)
echo=$(rule echo 81 9001)
inodes() { field "sorted((l['address'], l['inode']) for l in s['listeners'])"; }
restarted() { local now; now=$(main_pid); [[ $now != 0 && $now != "$1" ]] && served; }
talk() { # TEXT: over the connection that lasts
  echo "$1" >&5 || return 1
  local answer; read -r -t 30 -u 5 answer && [[ $answer == "$1" ]]
}
no_refusals() { [[ ! -e /tmp/refused ]] || fail "$(wc -l < /tmp/refused) were refused"; }
storm() {
  while [[ ! -e /tmp/enough ]]; do
    local code=0
    curl -s -o /dev/null --max-time 30 http://127.0.0.1/ || code=$?
    (( code == 7 )) && echo refused >> /tmp/refused
    sleep 0.01
  done
}

rules "$web" "$echo"
until_ok bash -c 'exec 6<>/dev/tcp/127.0.0.1/9001'
# Killed more often here than the manager lets a service be started by default.
drop_in quick '[Unit]' StartLimitIntervalSec=0
systemctl start baton.service || fail "start"
served || fail "not serving"
before=$(inodes)
storm & storm=$!

# mixed: the sockets stay, whatever becomes of the processes.
main=$(main_pid)
systemctl restart baton.service || fail "restart"
until_ok restarted "$main"
[[ $(inodes) == "$before" ]] || fail "other sockets after the restart: $(inodes), not $before"
main=$(main_pid)
kill -KILL "$main"
until_ok restarted "$main"
until_ok status
[[ $(inodes) == "$before" ]] || fail "other sockets after the kill: $(inodes), not $before"
no_refusals

# A listener that no configuration wants any more is not kept either.
kept() { [[ $(systemctl show -p NFileDescriptorStore --value baton.service) == "$1" ]]; }
until_ok kept 2
rules "$web"
baton reload --runtime-dir /run/baton || fail "reload"
until_ok kept 1
rules "$web" "$echo"
baton reload --runtime-dir /run/baton || fail "reload"
until_ok kept 2

# process: the worker stays too, and what is connected to it.
drop_in keep '[Service]' KillMode=process RestartKillSignal=SIGUSR1
exec 5<>/dev/tcp/127.0.0.1/81
talk one || fail "no echo"
before=$(inodes)
worker=$(serving)
main=$(main_pid)
systemctl restart baton.service || fail "restart"
until_ok restarted "$main"
[[ $(serving) == "$worker" ]] || fail "another worker serves after the restart"
[[ $(inodes) == "$before" ]] || fail "other sockets after the restart"
talk two || fail "the connection broke at the restart"
for round in 1 2 3; do
  main=$(main_pid)
  kill -KILL "$main"
  until_ok restarted "$main"
  # It is served by the worker alone; the new supervisor says when it is there.
  until_ok status
  [[ $(serving) == "$worker" ]] || fail "another worker serves after kill $round"
  [[ $(inodes) == "$before" ]] || fail "other sockets after kill $round"
  talk "three $round" || fail "the connection broke at kill $round"
done

# A replaced binary is taken up by a restart.
cp /usr/bin/baton /usr/bin/baton.new && mv /usr/bin/baton.new /usr/bin/baton
main=$(main_pid)
systemctl restart baton.service || fail "restart"
renewed() { [[ $(serving) != "$worker" ]] && served; }
until_ok renewed
[[ $(inodes) == "$before" ]] || fail "other sockets after the new binary"

# The supervisor has become the new binary as well, and may still bind a privileged port.
whole() { [[ $(field "s['supervisor']['images']") == 2 ]]; }
until_ok whole
rules "$web" "$(rule echo 83 9001)"
baton reload --runtime-dir /run/baton || fail "bind after replacing itself"

touch /tmp/enough
wait "$storm"
no_refusals
exec 5>&-
systemctl stop baton.service || fail "stop"
gone() { ! pgrep '^baton'; }
until_ok gone
echo passed
