use std::net::TcpListener;
use std::time::Instant;

use super::*;

fn want(key: &str, address: SocketAddr) -> ListenerWanted {
    ListenerWanted {
        key: ListenerKey(key.into()),
        role: ListenerRole::Rule,
        rule: format!("rule of {key}"),
        address,
        dual_stack: false,
    }
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[test]
fn one_busy_port_among_three_leaves_nothing_bound() {
    let busy = TcpListener::bind(any_port()).unwrap();
    let busy_address = busy.local_addr().unwrap();
    let mut listeners = Listeners::default();
    let wanted = [want("a", any_port()), want("b", busy_address), want("c", any_port())];

    let problems = listeners.bind_missing(&wanted).unwrap_err();

    assert_eq!(problems, ["listen rule of b at b: Address already in use (os error 98)"]);
    assert_eq!(listeners.info(), []);
}

#[test]
fn what_is_held_is_kept_with_its_socket_and_takes_the_new_name() {
    let mut listeners = Listeners::default();
    listeners.bind_missing(&[want("a", any_port())]).unwrap();
    let before = listeners.info();

    let mut renamed = want("a", any_port());
    renamed.rule = "renamed".into();
    let plan = [renamed, want("b", any_port())];
    let fresh = listeners.bind_missing(&plan).unwrap();

    assert_eq!(fresh, [ListenerKey("b".into())]);
    assert_eq!(listeners.info()[0], before[0], "the old name stays until the plan is accepted");
    listeners.name(&plan);
    let after = listeners.info();
    assert_eq!((after[0].inode, after[0].rule.as_str()), (before[0].inode, "renamed"));
}

#[test]
fn a_socket_of_the_service_manager_is_adopted_by_address() {
    let given = TcpListener::bind(any_port()).unwrap();
    let address = given.local_addr().unwrap();
    let expected = inode(&Socket::from(given.try_clone().unwrap())).unwrap();
    let mut listeners = Listeners::default();

    assert!(listeners.adopt(vec![given.into()]).is_empty());
    listeners.bind_missing(&[want("a", address)]).unwrap();

    assert_eq!(listeners.info()[0].inode, expected);
    assert_eq!(listeners.close_unclaimed(), []);
}

#[test]
fn what_is_no_listener_is_not_adopted() {
    let datagram = std::net::UdpSocket::bind(any_port()).unwrap();
    let mut listeners = Listeners::default();
    let refused = listeners.adopt(vec![datagram.into()]);
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].0, 0);
}

#[test]
fn closing_a_listener_frees_its_port() {
    let mut listeners = Listeners::default();
    // An address where no other test looks for a port.
    let [a, b, ..] = std::process::id().to_le_bytes();
    let address = SocketAddr::from(([127, 78, a, b.max(1)], 10_000));
    let keys = listeners.bind_missing(&[want("a", address)]).unwrap();
    assert!(TcpListener::bind(address).is_err());
    listeners.close(&keys);
    assert!(listeners.sockets(&keys).is_none());
    // A process that a neighbouring test is just starting holds a copy for a moment.
    let start = Instant::now();
    while let Err(error) = TcpListener::bind(address) {
        assert!(start.elapsed() < Duration::from_secs(60), "{error}");
        std::thread::yield_now();
    }
}

#[test]
fn a_second_copy_of_a_socket_that_is_held_is_closed_without_a_word() {
    let socket = TcpListener::bind(any_port()).unwrap();
    let other = TcpListener::bind(any_port()).unwrap();
    let (address, unwanted) = (socket.local_addr().unwrap(), other.local_addr().unwrap());
    let mut listeners = Listeners::default();
    let copies = [socket.try_clone().unwrap(), socket, other].map(OwnedFd::from);
    assert!(listeners.adopt(copies.into()).is_empty());
    listeners.bind_missing(&[want("a", address)]).unwrap();
    let unclaimed: Vec<_> =
        listeners.close_unclaimed().into_iter().map(|unclaimed| unclaimed.address).collect();
    assert_eq!(unclaimed, [unwanted]);
}
