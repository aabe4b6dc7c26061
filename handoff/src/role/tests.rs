use super::*;
use crate::channel::pair;
use crate::codec::CodecError;
use crate::frame::{HEADER_LEN, MAX_PACKET};
use crate::memfd::MemfdError;
use crate::message::{
    Generation, HelloSupervisor, HelloWorker, ListenerKey, Listeners, Prepare, WorkerId,
};
use sendfd::SendWithFd as _;
use std::fs::File;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixDatagram;

mod golden;
mod hostile;
mod peers;
mod versions;

fn hello_worker() -> ToWorker {
    ToWorker::Hello(HelloWorker { worker: WorkerId(1), version: "0.1.0".into() })
}

fn hello_supervisor() -> ToSupervisor {
    ToSupervisor::Hello(HelloSupervisor { version: "0.1.0".into(), pid: 7 })
}

/// Two ends that have not greeted each other.
fn fresh() -> (SupervisorEnd, WorkerEnd) {
    let (supervisor, worker) = pair().unwrap();
    (SupervisorEnd::new(supervisor).unwrap(), WorkerEnd::new(worker).unwrap())
}

/// Two ends that have greeted each other.
async fn greeted() -> (SupervisorEnd, WorkerEnd) {
    let (supervisor, worker) = fresh();
    supervisor.send(&hello_worker(), &[]).await.unwrap();
    let greeting = worker.recv().await.unwrap();
    worker.reply(greeting.transaction, &hello_supervisor()).await.unwrap();
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
    let (sockets, message) = listeners(MAX_FDS);
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
        let client = std::net::TcpStream::connect(mine.local_addr().unwrap()).unwrap();
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

#[tokio::test]
async fn a_body_is_inline_up_to_its_bound_and_in_a_memfd_beyond() {
    let (near, far) = pair().unwrap();
    let supervisor = SupervisorEnd::resume(near, Version(1)).unwrap();
    let far = UnixDatagram::from(far);
    let prepare = |len| {
        let config = vec![b'x'; len];
        ToWorker::Prepare(Prepare { generation: Generation(1), source: String::new(), config })
    };
    let overhead = prepare(60_000).encode().unwrap().len() - 60_000;
    let mut packet = vec![0; MAX_PACKET + 1];

    supervisor.send(&prepare(MAX_INLINE - overhead), &[]).await.unwrap();
    assert_eq!(far.recv(&mut packet).unwrap(), MAX_PACKET);
    supervisor.send(&prepare(MAX_INLINE - overhead + 1), &[]).await.unwrap();
    assert_eq!(far.recv(&mut packet).unwrap(), HEADER_LEN);
}

#[tokio::test]
async fn what_no_message_may_be_is_not_sent() {
    let (supervisor, worker) = greeted().await;
    let (sockets, message) = listeners(MAX_FDS + 1);
    let fds: Vec<_> = sockets.iter().map(|s| s.as_fd()).collect();
    let error = supervisor.send(&message, &fds).await.unwrap_err();
    assert!(matches!(error, SendError::Manifest { given: 201, most: 200, .. }), "{error}");
    let error = supervisor.send(&message, &fds[..200]).await.unwrap_err();
    assert!(matches!(error, SendError::Manifest { given: 200, least: 201, .. }), "{error}");
    let error = supervisor.send(&ToWorker::Quiesce, &fds[..1]).await.unwrap_err();
    assert!(matches!(error, SendError::Manifest { given: 1, most: 0, .. }), "{error}");
    let config = vec![0; MAX_BODY];
    let prepare = Prepare { generation: Generation(1), source: String::new(), config };
    let error = supervisor.send(&ToWorker::Prepare(prepare), &[]).await.unwrap_err();
    assert!(matches!(error, SendError::TooLong { .. }), "{error}");

    supervisor.send(&ToWorker::Ping, &[]).await.unwrap();
    assert_eq!(worker.recv().await.unwrap().message, ToWorker::Ping);
}

#[tokio::test]
async fn answers_name_their_request_and_other_messages_none() {
    let (supervisor, worker) = greeted().await;
    let first = supervisor.send(&ToWorker::Quiesce, &[]).await.unwrap();
    let second = supervisor.send(&ToWorker::Activate(Generation(1)), &[]).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(worker.recv().await.unwrap().transaction, first);
    assert_eq!(worker.recv().await.unwrap().transaction, second);
    worker.send(&ToSupervisor::Quiesced).await.unwrap();
    worker.reply(second, &ToSupervisor::Active(Generation(1))).await.unwrap();
    assert_eq!(supervisor.recv().await.unwrap().transaction, Transaction::NONE);
    assert_eq!(supervisor.recv().await.unwrap().transaction, second);
}

#[tokio::test]
async fn the_last_words_of_a_dead_peer_are_heard_before_its_end() {
    let (supervisor, worker) = greeted().await;
    worker.send(&ToSupervisor::Drained { cut: 3 }).await.unwrap();
    drop(worker);
    let received = supervisor.recv().await.unwrap();
    assert_eq!(received.message, ToSupervisor::Drained { cut: 3 });
    assert!(matches!(supervisor.recv().await, Err(RecvError::Closed)));
    assert!(matches!(supervisor.recv().await, Err(RecvError::Closed)));
    let error = supervisor.send(&ToWorker::Quiesce, &[]).await.unwrap_err();
    assert!(matches!(error, SendError::Closed(_)), "{error}");
}

#[tokio::test]
async fn a_peer_that_died_with_unread_messages_reads_as_closed() {
    let (supervisor, worker) = greeted().await;
    supervisor.send(&ToWorker::Ping, &[]).await.unwrap();
    drop(worker);
    assert!(matches!(supervisor.recv().await, Err(RecvError::Closed)));
}

#[tokio::test]
async fn a_receiver_wakes_when_its_peer_dies() {
    let (supervisor, worker) = greeted().await;
    let (received, ()) = tokio::join!(supervisor.recv(), async { drop(worker) });
    assert!(matches!(received, Err(RecvError::Closed)));
}

#[tokio::test]
async fn a_sender_waits_for_room_and_can_be_dropped_without_a_trace() {
    let (near, far) = pair().unwrap();
    let filler = UnixDatagram::from(near.try_clone().unwrap());
    let far = UnixDatagram::from(far);
    let supervisor = SupervisorEnd::resume(near, Version(1)).unwrap();
    let mut fillers = 0;
    while filler.send(&[0; 1000]).is_ok() {
        fillers += 1;
    }
    tokio::select! {
        biased;
        sent = supervisor.send(&ToWorker::Ping, &[]) => panic!("sent into a full queue: {sent:?}"),
        // The runtime has looked at the socket by now: the sender had its chance.
        () = async { for _ in 0..10 { tokio::task::yield_now().await } } => {}
    }
    let mut packet = [0; 2000];
    let (sent, ()) = tokio::join!(supervisor.send(&ToWorker::Quiesce, &[]), async {
        for _ in 0..fillers {
            assert_eq!(far.recv(&mut packet).unwrap(), 1000);
        }
    });
    sent.unwrap();
    far.recv(&mut packet).unwrap();
    assert_eq!(Header::decode(&packet[..HEADER_LEN]).unwrap().0.kind, ToWorker::Quiesce.kind());
    assert_eq!(far.recv(&mut packet).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn only_a_packet_socket_is_taken_for_an_end() {
    let (datagram, _other) = UnixDatagram::pair().unwrap();
    for fd in [OwnedFd::from(datagram), File::open("/dev/null").unwrap().into()] {
        assert!(WorkerEnd::new(fd).is_err());
    }
}

#[tokio::test]
async fn an_end_can_send_from_one_task_while_another_receives() {
    let (supervisor, worker) = greeted().await;
    let worker = std::sync::Arc::new(worker);
    let receiver = tokio::spawn({
        let worker = worker.clone();
        async move { worker.recv().await.unwrap().message }
    });
    worker.send(&ToSupervisor::Quiesced).await.unwrap();
    supervisor.recv().await.unwrap();
    supervisor.send(&ToWorker::Ping, &[]).await.unwrap();
    assert_eq!(receiver.await.unwrap(), ToWorker::Ping);
}
