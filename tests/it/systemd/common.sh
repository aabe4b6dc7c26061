# What the scenarios share. Sourced inside the sandbox.
set -euo pipefail

fail() {
  echo "FAILED: $*"
  systemctl status baton.service --no-pager || true
  journalctl -u baton.service --no-pager -n 60 || true
  exit 1
}

# Asks until the command succeeds; a phase that never comes ends the scenario.
until_ok() {
  for _ in $(seq 2400); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.05
  done
  fail "waited in vain: $*"
}

configure() { # FILE-TIMEOUT
  cat > /etc/baton/setting.json <<JSON
{ "metrics": { "enabled": true, "listen": "127.0.0.1:9090" },
  "supervisor": { "watch": "1s" },
  "rules": [ { "name": "web", "listen": "127.0.0.1:80", "mode": "normal", "timeout": $1,
               "targets": [ { "address": "127.0.0.1:9000" } ] } ] }
JSON
}

drop_in() { # NAME LINE...
  local name=$1; shift
  mkdir -p /etc/systemd/system/baton.service.d
  printf '%s\n' "$@" > "/etc/systemd/system/baton.service.d/$name.conf"
  systemctl daemon-reload
}
status() { baton status --runtime-dir /run/baton --json; }
field() { status | python3 -c "import json,sys; s=json.load(sys.stdin); print($1)"; }
serving() { field "[w['pid'] for w in s['workers'] if w['role']=='serving'][0]"; }
main_pid() { systemctl show -p MainPID --value baton.service; }
served() { curl -sf -o /dev/null --max-time 30 http://127.0.0.1/; }
accepted() {
  baton metrics --runtime-dir /run/baton |
    awk '/^baton_connections_accepted_total/ { n += $NF } END { print n + 0 }'
}

install -m 0755 "$BATON" /usr/bin/baton
install -D -m 0644 "$ROOT/packaging/baton.service" /etc/systemd/system/baton.service
mkdir -p /etc/baton /srv/www
echo hello > /srv/www/index.html
systemd-run -q --unit=upstream -p WorkingDirectory=/srv/www \
  "$(command -v python3)" -m http.server --bind 127.0.0.1 9000
configure 1000
until_ok curl -sf -o /dev/null http://127.0.0.1:9000/
