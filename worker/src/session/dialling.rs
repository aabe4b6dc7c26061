//! Carries out what a selection machine says, one attempt at a time.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;

use baton_config::model::Host;

use crate::flow::{AttemptId, Event, Fault, GiveUp, Moment, Step, Steps};
use crate::net::{self, Connecting, Socket};
use crate::select::Machine;
use crate::upstream::LineSet;

/// Dials until the machine is satisfied or gives up.
pub(super) async fn drive(machine: &mut Machine, lines: &LineSet) -> Result<Socket, GiveUp> {
    let mut steps = Steps::new();
    let mut connected: Option<(AttemptId, Socket)> = None;
    machine.start(net::now(), &mut steps);
    let mut queue: VecDeque<Step> = steps.drain(..).collect();
    while let Some(step) = queue.pop_front() {
        match step {
            Step::Dial { attempt, line, deadline, .. } => {
                machine.on(Event::Started(attempt), net::now(), &mut steps);
                let begun = net::now();
                let address = &lines.node(line).address;
                let event = match &address.host {
                    Host::Ip(ip) => match dial(*ip, address.port, deadline).await {
                        Ok(socket) => {
                            connected = Some((attempt, socket));
                            let connect = Some(net::now().since(begun));
                            Event::Connected { attempt, connect }
                        }
                        Err(_) => Event::Failed { attempt, fault: Fault::Dial },
                    },
                    Host::Name(_) => Event::Failed { attempt, fault: Fault::Dial },
                };
                machine.on(event, net::now(), &mut steps);
            }
            Step::WakeAt(_) => {}
            Step::Cancel(_) => connected = None,
            Step::Use(_) => {
                return connected.take().map(|(_, socket)| socket).ok_or(GiveUp::AllFailed);
            }
            Step::GiveUp(why) => return Err(why),
        }
        queue.extend(steps.drain(..));
    }
    Err(GiveUp::AllFailed)
}

async fn dial(ip: IpAddr, port: u16, deadline: Moment) -> io::Result<Socket> {
    let address = SocketAddr::new(ip, port);
    let (fd, state) = net::connect(address)?;
    if state == Connecting::Done {
        return Ok(fd.into());
    }
    let socket = Socket::from(fd).register()?;
    let waiting = async {
        loop {
            let mut ready = socket.writable().await?;
            match net::confirm(socket.get_ref().as_fd(), address)? {
                Connecting::Done => return Ok::<_, io::Error>(()),
                Connecting::Pending => ready.clear_ready(),
            }
        }
    };
    let left = deadline.since(net::now());
    tokio::time::timeout(left, waiting).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(socket.into())
}
