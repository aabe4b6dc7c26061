use super::*;
use crate::channel::pair;
use crate::message::*;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;

/// Two ends that have greeted each other.
async fn greeted() -> (SupervisorEnd, WorkerEnd) {
    let (supervisor, worker) = pair().unwrap();
    let (supervisor, worker) =
        (SupervisorEnd::new(supervisor).unwrap(), WorkerEnd::new(worker).unwrap());
    let hello = HelloWorker { worker: WorkerId(1), version: "0.1.0".into() };
    supervisor.send(&ToWorker::Hello(hello), &[]).await.unwrap();
    let greeting = worker.recv().await.unwrap();
    let hello = HelloSupervisor { version: "0.1.0".into(), pid: 7 };
    worker.reply(greeting.transaction, &ToSupervisor::Hello(hello)).await.unwrap();
    supervisor.recv().await.unwrap();
    (supervisor, worker)
}

fn listeners(count: usize) -> (Vec<TcpListener>, ToWorker) {
    let sockets = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let keys = (0..count).map(|i| ListenerKey(format!("rule {i}"))).collect();
    let message = Listeners { generation: Generation(1), keys, last: true };
    (sockets, ToWorker::Listeners(message))
}

#[tokio::test]
async fn listeners_arrive_usable_in_order_and_close_on_exec() {
    let (supervisor, worker) = greeted().await;
    let (sockets, message) = listeners(200);
    let fds: Vec<_> = sockets.iter().map(|s| s.as_fd()).collect();
    let transaction = supervisor.send(&message, &fds).await.unwrap();
    let received = worker.recv().await.unwrap();
    assert_eq!((&received.message, received.transaction), (&message, transaction));
    for (mine, theirs) in sockets.iter().zip(received.fds) {
        let flags = nix::fcntl::fcntl(&theirs, nix::fcntl::FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags, nix::libc::FD_CLOEXEC);
        let theirs = TcpListener::from(theirs);
        assert_ne!(theirs.as_raw_fd(), mine.as_raw_fd());
        assert_eq!(theirs.local_addr().unwrap(), mine.local_addr().unwrap());
        let client = TcpStream::connect(mine.local_addr().unwrap()).unwrap();
        assert_eq!(theirs.accept().unwrap().1, client.local_addr().unwrap());
    }
}

#[tokio::test]
async fn a_long_configuration_and_the_region_arrive_together() {
    let (supervisor, worker) = greeted().await;
    let config: Vec<u8> = (0..16u32 << 20).map(|i| (i % 251).to_le_bytes()[0]).collect();
    let prepare = Prepare { generation: Generation(2), source: "a.json".into(), config };
    let region = File::open("/proc/self/exe").unwrap();
    supervisor.send(&ToWorker::Prepare(prepare.clone()), &[region.as_fd()]).await.unwrap();
    let received = worker.recv().await.unwrap();
    assert!(received.message == ToWorker::Prepare(prepare));
    assert_eq!(received.fds.len(), 1);
}
