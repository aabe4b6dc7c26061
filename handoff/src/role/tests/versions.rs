//! Releases that speak other protocol versions.

use super::*;
use crate::message::{Dead, Recover};
use crate::version;

fn speaking(supervisor: (u16, u16), worker: (u16, u16)) -> (SupervisorEnd, WorkerEnd) {
    let range = |(min, max)| VersionRange::new(Version(min), Version(max)).unwrap();
    let (near, far) = pair().unwrap();
    let supervisor = SupervisorEnd::speaking(near, range(supervisor)).unwrap();
    (supervisor, WorkerEnd::speaking(far, range(worker)).unwrap())
}

#[tokio::test]
async fn both_sides_agree_on_the_newest_common_version_by_greeting() {
    for (supervisor, worker) in [((1, 2), (2, 3)), ((2, 3), (1, 2)), ((1, 1), (1, 2))] {
        let newest = Version(supervisor.1.min(worker.1));
        let (supervisor, worker) = speaking(supervisor, worker);
        assert_eq!((supervisor.version(), worker.version()), (None, None));
        supervisor.send(&hello_worker(), &[]).await.unwrap();
        worker.recv().await.unwrap();
        worker.send(&hello_supervisor()).await.unwrap();
        supervisor.recv().await.unwrap();
        assert_eq!(supervisor.version(), Some(newest));
        assert_eq!(worker.version(), Some(newest));
        supervisor.send(&ToWorker::Quiesce, &[]).await.unwrap();
        assert_eq!(worker.recv().await.unwrap().message, ToWorker::Quiesce);
    }
}

#[tokio::test]
async fn without_a_common_version_both_sides_know_why() {
    let (supervisor, worker) = speaking((3, 4), (1, 2));
    supervisor.send(&hello_worker(), &[]).await.unwrap();
    let Err(RecvError::Refused(Fault::Version(refusal))) = worker.recv().await else {
        panic!("the worker took a greeting it cannot understand")
    };
    assert!(matches!(refusal, version::Refusal::PeerTooNew { .. }), "{refusal}");
    let Err(RecvError::Refused(Fault::Version(refusal))) = supervisor.recv().await else {
        panic!("the supervisor took an answer it cannot understand")
    };
    assert!(matches!(refusal, version::Refusal::PeerTooOld { .. }), "{refusal}");
    assert_eq!((supervisor.version(), worker.version()), (None, None));
}

#[tokio::test]
async fn nothing_is_said_or_heard_before_the_greeting() {
    let (supervisor, worker) = fresh();
    let error = supervisor.send(&ToWorker::Quiesce, &[]).await.unwrap_err();
    assert!(matches!(error, SendError::HelloExpected(_)), "{error}");

    let (near, far) = pair().unwrap();
    let eager = SupervisorEnd::resume(near, Version(1)).unwrap();
    let late = WorkerEnd::new(far).unwrap();
    eager.send(&ToWorker::Quiesce, &[]).await.unwrap();
    let refused = late.recv().await;
    assert!(matches!(refused, Err(RecvError::Refused(Fault::HelloExpected(_)))), "{refused:?}");
    let ToSupervisor::Nak(nak) = eager.recv().await.unwrap().message else { panic!("no refusal") };
    let error = crate::NakError::from(nak).to_string();
    assert_eq!(error, "the other side did not take Quiesce: Quiesce came before Hello");
    drop(worker);
}

#[tokio::test]
async fn a_message_of_another_version_than_agreed_is_refused() {
    let (near, far) = pair().unwrap();
    let worker = WorkerEnd::resume(far, Version(1)).unwrap();
    let header = Header {
        versions: VersionRange::only(Version(2)),
        kind: ToWorker::Ping.kind(),
        mandatory: true,
        place: Place::Inline,
        body_len: 0,
        transaction: Transaction(1),
        fds: 0,
    };
    UnixDatagram::from(near).send(&header.encode()).unwrap();
    let refused = worker.recv().await;
    assert!(matches!(refused, Err(RecvError::Refused(Fault::OtherVersion { .. }))), "{refused:?}");
}

#[tokio::test]
async fn a_channel_of_a_dropped_version_is_not_resumed() {
    let (near, _far) = pair().unwrap();
    let error = SupervisorEnd::resume(near, Version(9)).unwrap_err();
    assert_eq!(error.to_string(), "the channel uses protocol 9, this release speaks 1 to 2");
}

#[tokio::test]
async fn what_a_later_protocol_has_is_neither_said_nor_understood_in_an_earlier_one() {
    let (supervisor, worker) = speaking((1, 1), (1, 2));
    supervisor.send(&hello_worker(), &[]).await.unwrap();
    worker.recv().await.unwrap();
    worker.send(&hello_supervisor()).await.unwrap();
    supervisor.recv().await.unwrap();
    let (near, _far) = pair().unwrap();
    let lifeline = [near.as_fd(), near.as_fd()];
    let error = worker.hand(Transaction::NONE, &ToSupervisor::Lifeline, &lifeline).await;
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "Lifeline not sent: protocol 1 does not have it");

    let (near, far) = pair().unwrap();
    let worker = WorkerEnd::resume(far, Version(1)).unwrap();
    let body = ToWorker::Recover(Recover { dead: vec![Dead { worker: WorkerId(1), since_ms: 0 }] });
    let header = Header {
        versions: VersionRange::only(Version(1)),
        kind: body.kind(),
        mandatory: true,
        place: Place::Inline,
        body_len: body.encode().unwrap().len(),
        transaction: Transaction(1),
        fds: 0,
    };
    let packet = [&header.encode()[..], &body.encode().unwrap()].concat();
    UnixDatagram::from(near).send(&packet).unwrap();
    let refused = worker.recv().await;
    assert!(matches!(refused, Err(RecvError::Refused(Fault::UnknownType(_)))), "{refused:?}");
}
