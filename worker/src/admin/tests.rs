use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener as StdListener, TcpStream as StdStream};
use std::thread;

use tokio::runtime::{Builder, LocalOptions};

use super::*;

struct Ready;

impl View for Ready {
    fn status(&self) -> String {
        "{}".to_owned()
    }

    fn ready(&self) -> bool {
        true
    }

    fn metrics(&self) -> Result<(Vec<u8>, &'static str), String> {
        Ok((vec![b'x'; 1 << 20], "text/plain; version=0.0.4"))
    }
}

/// Runs `clients` on a thread of its own against a server, until it returns.
fn with_server<T: Send + 'static>(clients: impl FnOnce(SocketAddr) -> T + Send + 'static) -> T {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(async move {
        let server = AdminServer::start(listener.into(), Rc::new(Ready)).unwrap();
        let (done, result) = tokio::sync::oneshot::channel();
        let thread = thread::spawn(move || done.send(clients(address)).ok());
        let result = result.await.unwrap();
        thread.join().unwrap();
        server.stop().await;
        result
    })
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = StdStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn health_is_answered_over_http() {
    let answer = with_server(|address| ask(address, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
}

#[test]
fn head_tells_the_length_and_sends_no_body() {
    let answer = with_server(|address| ask(address, "HEAD /healthz HTTP/1.1\r\nhost: x\r\n\r\n"));
    assert!(answer.contains("content-length: 2\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn a_client_that_closes_its_side_still_gets_the_whole_answer() {
    let length = with_server(|address| {
        let mut stream = StdStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer.len()
    });
    assert!(length > 1 << 20, "{length}");
}

#[test]
fn silent_clients_do_not_keep_others_from_being_served() {
    let answer = with_server(|address| {
        let silent: Vec<_> =
            (0..3 * MAX_CONNECTIONS).map(|_| StdStream::connect(address).unwrap()).collect();
        let answer = ask(address, "GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n");
        drop(silent);
        answer
    });
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[test]
fn the_longest_silent_client_makes_room_and_one_that_asked_never() {
    let runtime = Builder::new_current_thread().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let client = |asked: bool| Client {
            serving: spawn_local(std::future::pending::<()>()).abort_handle(),
            asked: Rc::new(Cell::new(asked)),
        };
        let clients: VecDeque<_> = [true, false, false].map(client).into();
        make_room(&clients);
        tokio::task::yield_now().await;
        let ended: Vec<_> = clients.iter().map(|client| client.serving.is_finished()).collect();
        assert_eq!(ended, [false, true, false]);
    });
}

#[test]
fn a_stopped_server_leaves_the_listener_to_others() {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let copy = listener.try_clone().unwrap();
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let server = AdminServer::start(copy.into(), Rc::new(Ready)).unwrap();
        tokio::task::yield_now().await;
        server.stop().await;
    });
    let _client = StdStream::connect(listener.local_addr().unwrap()).unwrap();
    listener.set_nonblocking(false).unwrap();
    assert!(listener.accept().is_ok());
}
