//! Type numbers, field tags and descriptor rules of every message: the protocol's tables.
//!
//! Numbers and tags are never used again for something else. A new optional message or field is
//! compatible; everything else is a new protocol version (and new golden files).

use super::{
    ANSWER_MAX, Adopted, Answer, Dead, Drain, Generation, HelloSupervisor, HelloWorker,
    ListenerKey, ListenerRole, ListenerWanted, Listeners, MAX_DEAD, Migrate, Migrated, Nak, Plan,
    Prepare, Pulse, QUERY_MAX, Query, Recover, Recovered, Refused, Returned, ToSupervisor,
    ToWorker,
};
use crate::bundle::{Carries, DescriptorKind};
use crate::codec::{CodecError, Decode, Encode, Fields, Writer};
use crate::frame::{Direction, HELLO, Kind, NAK};
use crate::version::{LIVING, Version};
use std::net::SocketAddr;

/// Most listeners a plan may ask for: far beyond any sane configuration, far below what would
/// hurt the supervisor.
const MAX_LISTENERS: usize = 4096;

/// An enum of messages in one direction.
pub(crate) trait Message: Sized {
    const DIRECTION: Direction;

    fn kind(&self) -> Kind;
    /// What descriptors the message travels with.
    fn carries(&self) -> Carries;
    fn write(&self, out: &mut Writer) -> Result<(), CodecError>;
    /// `None`: no such type.
    fn read(kind: Kind, fields: &mut Fields<'_>) -> Option<Result<Self, CodecError>>;
    fn nak(nak: Nak) -> Self;

    /// A receiver that does not know the type must refuse it, not skip it. Signs of life may be
    /// skipped, and a refusal is never refused.
    fn mandatory(&self) -> bool;

    /// The first protocol version that has the message.
    fn since(&self) -> Version {
        since(self.kind())
    }

    /// The body as it travels.
    fn encode(&self) -> Result<Vec<u8>, CodecError> {
        let mut out = Writer::default();
        self.write(&mut out)?;
        Ok(out.finish())
    }

    /// Reads a body of the given type. `None`: no such type.
    fn decode(kind: Kind, body: &[u8]) -> Option<Result<Self, CodecError>> {
        let mut fields = match Fields::parse(body) {
            Ok(fields) => fields,
            // An unknown type's body is nobody's business, not even to find it malformed.
            Err(error) => return name(kind).map(|_| Err(error)),
        };
        let message = match Self::read(kind, &mut fields)? {
            Ok(message) => message,
            Err(error) => return Some(Err(error)),
        };
        Some(fields.finish().map(|()| message))
    }
}

/// A struct that is a whole body.
trait Body: Sized {
    fn write(&self, out: &mut Writer) -> Result<(), CodecError>;
    fn read(fields: &mut Fields<'_>) -> Result<Self, CodecError>;
}

macro_rules! body {
    ($name:ident { $($tag:literal $field:ident),+ $(,)? }) => {
        impl Body for $name {
            fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
                $(out.field($tag, &self.$field)?;)+
                Ok(())
            }
            fn read(fields: &mut Fields<'_>) -> Result<Self, CodecError> {
                Ok(Self { $($field: fields.take($tag)?),+ })
            }
        }
    };
}

body!(HelloWorker { 1 worker, 2 version });
body!(Prepare { 1 generation, 2 source, 3 config });
body!(Listeners { 1 generation, 2 keys, 3 last });
body!(Drain { 1 timeout_ms });
body!(HelloSupervisor { 1 version, 2 pid });
body!(Refused { 1 generation, 2 problems });
body!(Pulse { 1 generation, 2 connections, 3 retired_generations });
body!(Adopted { 1 standing, 2 generation, 3 source, 4 config });
body!(Migrate { 1 side, 2 other, 3 timeout_ms });
body!(Migrated { 1 moved, 2 waiting, 3 kept, 4 longest_pause_us, 5 over });
body!(Recovered { 1 resumed, 2 lost, 3 failures });
body!(Nak { 1 kind, 2 reason });

/// [`ListenerWanted`] as it travels: the codec drops the scope of an IPv6 address.
#[derive(Encode, Decode)]
struct WantedOnTheWire {
    key: ListenerKey,
    role: ListenerRole,
    rule: String,
    address: SocketAddr,
    scope: u32,
    dual_stack: bool,
}

impl From<&ListenerWanted> for WantedOnTheWire {
    fn from(wanted: &ListenerWanted) -> Self {
        let ListenerWanted { key, role, rule, address, dual_stack } = wanted.clone();
        let scope = match address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        Self { key, role, rule, address, scope, dual_stack }
    }
}

impl From<WantedOnTheWire> for ListenerWanted {
    fn from(wire: WantedOnTheWire) -> Self {
        let WantedOnTheWire { key, role, rule, mut address, scope, dual_stack } = wire;
        if let SocketAddr::V6(address) = &mut address {
            address.set_scope_id(scope);
        }
        Self { key, role, rule, address, dual_stack }
    }
}

impl Body for Returned {
    fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
        let listeners: Vec<_> = self.listeners.iter().map(WantedOnTheWire::from).collect();
        out.field(1, listeners)?;
        out.field(2, self.last)
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, CodecError> {
        let listeners: Vec<WantedOnTheWire> = fields.take(1)?;
        let last = fields.take(2)?;
        Ok(Self { listeners: unique(listeners)?, last })
    }
}

/// What the supervisor relies on: it keeps one socket a key.
fn unique(listeners: Vec<WantedOnTheWire>) -> Result<Vec<ListenerWanted>, CodecError> {
    if listeners.len() > MAX_LISTENERS {
        return Err(CodecError::Content("more listeners than any configuration has"));
    }
    let mut keys: Vec<_> = listeners.iter().map(|wanted| &wanted.key).collect();
    keys.sort_unstable();
    if keys.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(CodecError::Content("two listeners have the same key"));
    }
    Ok(listeners.into_iter().map(ListenerWanted::from).collect())
}

impl Body for Plan {
    fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
        let listeners: Vec<_> = self.listeners.iter().map(WantedOnTheWire::from).collect();
        out.field(1, self.generation)?;
        out.field(2, listeners)?;
        out.field(3, self.unchanged)
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, CodecError> {
        let generation = fields.take(1)?;
        let listeners: Vec<WantedOnTheWire> = fields.take(2)?;
        let unchanged = fields.take(3)?;
        Ok(Self { generation, listeners: unique(listeners)?, unchanged })
    }
}

impl Body for Query {
    fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
        out.field(1, self.id)?;
        out.field(2, bounded(&self.text, QUERY_MAX)?)
    }
    fn read(fields: &mut Fields<'_>) -> Result<Self, CodecError> {
        let (id, text): (_, String) = (fields.take(1)?, fields.take(2)?);
        bounded(&text, QUERY_MAX)?;
        Ok(Self { id, text })
    }
}

impl Body for Answer {
    fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
        out.field(1, self.id)?;
        out.field(2, bounded(&self.text, ANSWER_MAX)?)
    }
    fn read(fields: &mut Fields<'_>) -> Result<Self, CodecError> {
        let (id, text): (_, String) = (fields.take(1)?, fields.take(2)?);
        bounded(&text, ANSWER_MAX)?;
        Ok(Self { id, text })
    }
}

impl Migrate {
    /// Its type number, as a `Nak` names it.
    pub const KIND: u16 = to_worker::Migrate.0;
}

impl Recover {
    /// Its type number, as a `Nak` names it.
    pub const KIND: u16 = to_worker::Recover.0;
}

impl Body for Recover {
    fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
        out.field(1, &self.dead)
    }
    fn read(fields: &mut Fields<'_>) -> Result<Self, CodecError> {
        let dead: Vec<Dead> = fields.take(1)?;
        if dead.is_empty() || dead.len() > MAX_DEAD {
            return Err(CodecError::Content("nobody is dead, or more than ever are"));
        }
        Ok(Self { dead })
    }
}

fn bounded(text: &str, most: usize) -> Result<&str, CodecError> {
    if text.len() > most {
        return Err(CodecError::Content("the text is longer than questions and answers are"));
    }
    Ok(text)
}

impl Body for Generation {
    fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
        out.field(1, self)
    }
    fn read(fields: &mut Fields<'_>) -> Result<Self, CodecError> {
        fields.take(1)
    }
}

/// The type numbers of one direction with the names that errors use, in one place for the
/// encoder, the decoder and the texts.
macro_rules! kinds {
    ($module:ident $direction:ident { $($name:ident = $number:expr),+ $(,)? }) => {
        mod $module {
            use super::*;
            $(
                #[allow(non_upper_case_globals, reason = "they mirror the enum's variants")]
                pub(super) const $name: Kind = Kind::new(Direction::$direction, $number);
            )+
            pub(super) const NAMES: &[(Kind, &str)] = &[$(($name, stringify!($name))),+];
        }
    };
}

kinds!(to_worker ToWorker {
    Hello = HELLO, Prepare = 2, Listeners = 3, Activate = 4, Abort = 5, Quiesce = 6, Drain = 7,
    Ping = 8, Query = 16, AdoptionSocket = 20, Adopt = 21, Migrate = 24,
    Recover = 25, Nak = NAK,
});
kinds!(peer Peer {
    Hello = HELLO, Offer = 2, Answer = 3, Commit = 4, Withdraw = 5, Over = 6, Nak = NAK,
});
kinds!(to_supervisor ToSupervisor {
    Hello = HELLO, Plan = 2, Refused = 3, Ready = 4, Active = 5, Quiesced = 6, Drained = 7,
    Pong = 8, Answer = 16, Adopted = 20, Returned = 21, Lifeline = 24,
    Migrated = 25, Recovered = 26, Nak = NAK,
});

/// The first protocol version that has messages of a known type.
pub(crate) fn since(kind: Kind) -> Version {
    match kind {
        to_worker::Migrate
        | to_worker::Recover
        | to_supervisor::Lifeline
        | to_supervisor::Migrated
        | to_supervisor::Recovered => LIVING,
        _ => Version(1),
    }
}

/// The name of a known type.
pub(crate) fn name(kind: Kind) -> Option<&'static str> {
    let mut all = to_worker::NAMES.iter().chain(to_supervisor::NAMES).chain(peer::NAMES);
    all.find(|(known, _)| *known == kind).map(|(_, name)| *name)
}

impl Message for ToWorker {
    const DIRECTION: Direction = Direction::ToWorker;

    fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => to_worker::Hello,
            Self::Prepare(_) => to_worker::Prepare,
            Self::Listeners(_) => to_worker::Listeners,
            Self::Activate(_) => to_worker::Activate,
            Self::Abort(_) => to_worker::Abort,
            Self::Quiesce => to_worker::Quiesce,
            Self::Drain(_) => to_worker::Drain,
            Self::Ping => to_worker::Ping,
            Self::Query(_) => to_worker::Query,
            Self::AdoptionSocket => to_worker::AdoptionSocket,
            Self::Adopt => to_worker::Adopt,
            Self::Migrate(_) => to_worker::Migrate,
            Self::Recover(_) => to_worker::Recover,
            Self::Nak(_) => to_worker::Nak,
        }
    }

    fn mandatory(&self) -> bool {
        !matches!(self, Self::Ping | Self::Query(_) | Self::AdoptionSocket | Self::Nak(_))
    }

    fn carries(&self) -> Carries {
        match self {
            Self::Prepare(_) => Carries { kind: DescriptorKind::Region, least: 0, most: 1 },
            Self::Listeners(listeners) => {
                let count = listeners.keys.len();
                Carries { kind: DescriptorKind::Listener, least: count, most: count }
            }
            Self::AdoptionSocket => Carries { kind: DescriptorKind::Adoption, least: 1, most: 1 },
            Self::Migrate(_) => Carries { kind: DescriptorKind::Channel, least: 1, most: 1 },
            Self::Recover(recover) => {
                let count = 2 * recover.dead.len();
                Carries { kind: DescriptorKind::Lifeline, least: count, most: count }
            }
            Self::Hello(_)
            | Self::Adopt
            | Self::Activate(_)
            | Self::Abort(_)
            | Self::Quiesce
            | Self::Drain(_)
            | Self::Ping
            | Self::Query(_)
            | Self::Nak(_) => Carries::NOTHING,
        }
    }

    fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
        match self {
            Self::Hello(body) => body.write(out),
            Self::Prepare(body) => body.write(out),
            Self::Listeners(body) => body.write(out),
            Self::Activate(generation) | Self::Abort(generation) => generation.write(out),
            Self::Drain(body) => body.write(out),
            Self::Query(body) => body.write(out),
            Self::Migrate(body) => body.write(out),
            Self::Recover(body) => body.write(out),
            Self::Nak(body) => body.write(out),
            Self::Quiesce | Self::Ping | Self::AdoptionSocket | Self::Adopt => Ok(()),
        }
    }

    fn read(kind: Kind, fields: &mut Fields<'_>) -> Option<Result<Self, CodecError>> {
        Some(match kind {
            to_worker::Hello => Body::read(fields).map(Self::Hello),
            to_worker::Prepare => Body::read(fields).map(Self::Prepare),
            to_worker::Listeners => Body::read(fields).map(Self::Listeners),
            to_worker::Activate => Body::read(fields).map(Self::Activate),
            to_worker::Abort => Body::read(fields).map(Self::Abort),
            to_worker::Quiesce => Ok(Self::Quiesce),
            to_worker::Drain => Body::read(fields).map(Self::Drain),
            to_worker::Ping => Ok(Self::Ping),
            to_worker::Query => Body::read(fields).map(Self::Query),
            to_worker::AdoptionSocket => Ok(Self::AdoptionSocket),
            to_worker::Adopt => Ok(Self::Adopt),
            to_worker::Migrate => Body::read(fields).map(Self::Migrate),
            to_worker::Recover => Body::read(fields).map(Self::Recover),
            to_worker::Nak => Body::read(fields).map(Self::Nak),
            _ => return None,
        })
    }

    fn nak(nak: Nak) -> Self {
        Self::Nak(nak)
    }
}

impl Message for ToSupervisor {
    const DIRECTION: Direction = Direction::ToSupervisor;

    fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => to_supervisor::Hello,
            Self::Plan(_) => to_supervisor::Plan,
            Self::Refused(_) => to_supervisor::Refused,
            Self::Ready(_) => to_supervisor::Ready,
            Self::Active(_) => to_supervisor::Active,
            Self::Quiesced => to_supervisor::Quiesced,
            Self::Drained { .. } => to_supervisor::Drained,
            Self::Pong(_) => to_supervisor::Pong,
            Self::Answer(_) => to_supervisor::Answer,
            Self::Adopted(_) => to_supervisor::Adopted,
            Self::Returned(_) => to_supervisor::Returned,
            Self::Lifeline => to_supervisor::Lifeline,
            Self::Migrated(_) => to_supervisor::Migrated,
            Self::Recovered(_) => to_supervisor::Recovered,
            Self::Nak(_) => to_supervisor::Nak,
        }
    }

    fn mandatory(&self) -> bool {
        !matches!(self, Self::Pong(_) | Self::Answer(_) | Self::Nak(_))
    }

    fn carries(&self) -> Carries {
        match self {
            Self::Returned(returned) => {
                let count = returned.listeners.len();
                Carries { kind: DescriptorKind::Listener, least: count, most: count }
            }
            Self::Lifeline => Carries { kind: DescriptorKind::Lifeline, least: 2, most: 2 },
            Self::Hello(_)
            | Self::Plan(_)
            | Self::Refused(_)
            | Self::Ready(_)
            | Self::Active(_)
            | Self::Quiesced
            | Self::Drained { .. }
            | Self::Pong(_)
            | Self::Answer(_)
            | Self::Adopted(_)
            | Self::Migrated(_)
            | Self::Recovered(_)
            | Self::Nak(_) => Carries::NOTHING,
        }
    }

    fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
        match self {
            Self::Hello(body) => body.write(out),
            Self::Plan(body) => body.write(out),
            Self::Refused(body) => body.write(out),
            Self::Ready(generation) | Self::Active(generation) => generation.write(out),
            Self::Quiesced | Self::Lifeline => Ok(()),
            Self::Migrated(body) => body.write(out),
            Self::Recovered(body) => body.write(out),
            Self::Drained { cut } => out.field(1, cut),
            Self::Pong(body) => body.write(out),
            Self::Answer(body) => body.write(out),
            Self::Adopted(body) => body.write(out),
            Self::Returned(body) => body.write(out),
            Self::Nak(body) => body.write(out),
        }
    }

    fn read(kind: Kind, fields: &mut Fields<'_>) -> Option<Result<Self, CodecError>> {
        Some(match kind {
            to_supervisor::Hello => Body::read(fields).map(Self::Hello),
            to_supervisor::Plan => Body::read(fields).map(Self::Plan),
            to_supervisor::Refused => Body::read(fields).map(Self::Refused),
            to_supervisor::Ready => Body::read(fields).map(Self::Ready),
            to_supervisor::Active => Body::read(fields).map(Self::Active),
            to_supervisor::Quiesced => Ok(Self::Quiesced),
            to_supervisor::Drained => fields.take(1).map(|cut| Self::Drained { cut }),
            to_supervisor::Pong => Body::read(fields).map(Self::Pong),
            to_supervisor::Answer => Body::read(fields).map(Self::Answer),
            to_supervisor::Adopted => Body::read(fields).map(Self::Adopted),
            to_supervisor::Returned => Body::read(fields).map(Self::Returned),
            to_supervisor::Lifeline => Ok(Self::Lifeline),
            to_supervisor::Migrated => Body::read(fields).map(Self::Migrated),
            to_supervisor::Recovered => Body::read(fields).map(Self::Recovered),
            to_supervisor::Nak => Body::read(fields).map(Self::Nak),
            _ => return None,
        })
    }

    fn nak(nak: Nak) -> Self {
        Self::Nak(nak)
    }
}

mod between;

#[cfg(test)]
mod tests;
