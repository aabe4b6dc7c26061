//! nginx with its `stream` module: two workers in front of one upstream.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{find_program, text, version_line};

const MISSING: &str = "nginx with its stream module is not installed (Debian: apt-get install nginx-light libnginx-mod-stream)";

/// Where distributions put the module.
fn module() -> Option<PathBuf> {
    ["/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/share/nginx/modules"]
        .map(|place| Path::new(place).join("ngx_stream_module.so"))
        .into_iter()
        .find(|file| file.is_file())
}

pub(super) fn version() -> Result<String, String> {
    let program = find_program("nginx").ok_or(MISSING)?;
    module().ok_or(MISSING)?;
    version_line(&program, "-v").ok_or_else(|| MISSING.to_owned())
}

pub(super) fn command(
    directory: &Path,
    port: u16,
    upstream: SocketAddr,
) -> io::Result<Vec<String>> {
    let module = text(&module().ok_or(io::ErrorKind::NotFound)?);
    let (pid, log) = (text(&directory.join("pid")), text(&directory.join("error.log")));
    let limit = crate::procfs::descriptor_limit();
    let config = format!(
        "load_module {module};
daemon off;
worker_processes 2;
worker_rlimit_nofile {limit};
pid {pid};
error_log {log} warn;
events {{ worker_connections 32768; }}
stream {{
    access_log off;
    server {{
        listen 127.0.0.1:{port};
        proxy_pass {upstream};
        proxy_timeout 1h;
    }}
}}
"
    );
    let file = directory.join("nginx.conf");
    std::fs::write(&file, config)?;
    let program = find_program("nginx").ok_or(io::ErrorKind::NotFound)?;
    Ok(vec![text(&program), "-e".into(), log, "-c".into(), text(&file)])
}
