//! What happens at the process's descriptor limit. Alone in its process, because the limit is the
//! process's, and one test, because its parts would disturb each other.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use baton_handoff::message::{
    Generation, HelloSupervisor, HelloWorker, ListenerKey, Listeners, ToSupervisor, ToWorker,
    WorkerId,
};
use baton_handoff::{Fault, RecvError, SendError, SupervisorEnd, WorkerEnd, pair};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Uid, geteuid, setuid};
use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, AsRawFd as _};

fn next_free_number() -> u64 {
    File::open("/dev/null").unwrap().as_raw_fd().try_into().unwrap()
}

fn limit(soft: u64) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
}

#[tokio::test]
async fn a_process_out_of_descriptors_refuses_the_message_and_goes_on() {
    let (supervisor, worker) = pair().unwrap();
    let supervisor = SupervisorEnd::new(supervisor).unwrap();
    let worker = WorkerEnd::new(worker).unwrap();
    let hello = HelloWorker { worker: WorkerId(1), version: String::new() };
    supervisor.send(&ToWorker::Hello(hello), &[]).await.unwrap();
    worker.recv().await.unwrap();
    let hello = HelloSupervisor { version: String::new(), pid: 1 };
    worker.send(&ToSupervisor::Hello(hello)).await.unwrap();
    supervisor.recv().await.unwrap();

    let sockets: Vec<_> = (0..50).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let fds: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
    let message = |count| {
        let keys = (0..count).map(|i| ListenerKey(format!("{i}"))).collect();
        ToWorker::Listeners(Listeners { generation: Generation(1), keys, last: true })
    };

    // Room for two of five.
    let (before, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let free = next_free_number();
    limit(free + 2);
    let transaction = supervisor.send(&message(5), &fds[..5]).await.unwrap();
    let refused = worker.recv().await;
    assert_eq!(next_free_number(), free, "the two that arrived were left open");
    let Err(RecvError::Refused(Fault::Lost { declared: 5, received: 2, .. })) = refused else {
        panic!("{refused:?}")
    };
    let answer = supervisor.recv().await.unwrap();
    assert_eq!(answer.transaction, transaction);
    let ToSupervisor::Nak(nak) = answer.message else { panic!("{answer:?}") };
    assert!(nak.reason.contains("only 2 of 5 descriptors arrived"), "{}", nak.reason);

    limit(before);
    supervisor.send(&message(5), &fds[..5]).await.unwrap();
    assert_eq!(worker.recv().await.unwrap().fds.len(), 5);

    // Descriptors in flight count against the sender's limit, but not root's.
    if geteuid().is_root() {
        setuid(Uid::from_raw(65_534)).unwrap();
    }
    limit(free + 10);
    let mut sent = 0;
    let error = loop {
        match supervisor.send(&message(50), &fds).await {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 10, "500 descriptors in flight and no end");
    };
    assert!(matches!(error, SendError::TooManyInFlight(_)), "{error}");
    limit(before);
    for _ in 0..sent {
        assert_eq!(worker.recv().await.unwrap().fds.len(), 50);
    }
    supervisor.send(&message(50), &fds).await.unwrap();
    assert_eq!(worker.recv().await.unwrap().fds.len(), 50);
}
