//! The messages between two workers.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::{
    HelloPeer, MAX_INLINE_BYTES, MAX_OFFERED, NOWHERE, Nak, Offer, OfferAnswer, Offered, Peer,
};
use super::{Body, Message, peer};
use crate::bundle::{Carries, DescriptorKind};
use crate::codec::{CodecError, Decode, Encode, Fields, Writer};
use crate::frame::{Direction, Kind, MAX_FDS};
use crate::table::{Busy, Endpoint, Identity, PipeNumbers, RuleKey, TargetKey, Track};

/// [`Offered`] as it travels.
#[derive(Encode, Decode)]
struct OfferedOnTheWire {
    client_cookie: u64,
    upstream_cookie: u64,
    rule: u64,
    target: u64,
    target_index: u16,
    generation: u64,
    opened_at: u64,
    peer: SocketAddr,
    idle_ms: Option<u64>,
    adoptions: u8,
    adopted_at: u64,
    quiet_ms: u64,
    tracks: [TrackOnTheWire; 2],
}

#[derive(Encode, Decode)]
struct TrackOnTheWire {
    splices: bool,
    eof_seen: bool,
    fin_sent: bool,
    piped: bool,
    total: u64,
    inline: Vec<u8>,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<&Offered> for OfferedOnTheWire {
    fn from(offered: &Offered) -> Self {
        let Offered { record, quiet, inline: [up, down] } = offered;
        let identity = &record.identity;
        let track = |track: &Track, inline: &Vec<u8>| TrackOnTheWire {
            splices: track.splices,
            eof_seen: track.eof_seen,
            fin_sent: track.fin_sent,
            piped: track.pipe.is_some(),
            total: track.total,
            inline: inline.clone(),
        };
        Self {
            client_cookie: identity.client.cookie,
            upstream_cookie: identity.upstream.cookie,
            rule: identity.rule.0,
            target: identity.target.0,
            target_index: identity.target_index,
            generation: identity.generation,
            opened_at: identity.opened_at,
            peer: identity.peer,
            idle_ms: identity.idle.map(millis),
            adoptions: identity.adoptions,
            adopted_at: identity.adopted_at,
            quiet_ms: millis(*quiet),
            tracks: [track(&record.to_upstream, up), track(&record.to_client, down)],
        }
    }
}

impl From<OfferedOnTheWire> for Offered {
    fn from(wire: OfferedOnTheWire) -> Self {
        let nowhere = |cookie| Endpoint { number: NOWHERE, cookie };
        let identity = Identity {
            client: nowhere(wire.client_cookie),
            upstream: nowhere(wire.upstream_cookie),
            rule: RuleKey(wire.rule),
            target: TargetKey(wire.target),
            target_index: wire.target_index,
            generation: wire.generation,
            opened_at: wire.opened_at,
            peer: wire.peer,
            idle: wire.idle_ms.map(Duration::from_millis),
            adoptions: wire.adoptions,
            adopted_at: wire.adopted_at,
        };
        let track = |wire: &TrackOnTheWire| Track {
            busy: Busy::No,
            splices: wire.splices,
            eof_seen: wire.eof_seen,
            fin_sent: wire.fin_sent,
            pipe: wire.piped.then_some(PipeNumbers { read: NOWHERE, write: NOWHERE }),
            total: wire.total,
        };
        let [up, down] = wire.tracks;
        let tracks = [track(&up), track(&down)];
        let quiet = Duration::from_millis(wire.quiet_ms);
        Self::new(&identity, tracks, quiet, [up.inline, down.inline])
    }
}

body!(HelloPeer { 1 version });

impl Body for Offer {
    fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
        let connections: Vec<_> = self.connections.iter().map(OfferedOnTheWire::from).collect();
        out.field(1, connections)
    }

    /// Also checks what bounds the receiver's work.
    fn read(fields: &mut Fields<'_>) -> Result<Self, CodecError> {
        let connections: Vec<OfferedOnTheWire> = fields.take(1)?;
        let connections: Vec<_> = connections.into_iter().map(Offered::from).collect();
        if connections.len() > MAX_OFFERED {
            return Err(CodecError::Content("more connections than one offer may have"));
        }
        if connections.iter().map(Offered::descriptors).sum::<usize>() > MAX_FDS {
            return Err(CodecError::Content("more descriptors than one offer may have"));
        }
        let inline = connections.iter().flat_map(|offered| &offered.inline);
        if inline.into_iter().any(|bytes| bytes.len() > MAX_INLINE_BYTES) {
            return Err(CodecError::Content("more bytes than may travel inside an offer"));
        }
        Ok(Self { connections })
    }
}

impl Body for OfferAnswer {
    fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
        out.field(1, &self.accepted)
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, CodecError> {
        let accepted: Vec<bool> = fields.take(1)?;
        if accepted.len() > MAX_OFFERED {
            return Err(CodecError::Content("more answers than one offer may have"));
        }
        Ok(Self { accepted })
    }
}

impl Message for Peer {
    const DIRECTION: Direction = Direction::Peer;

    fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => peer::Hello,
            Self::Offer(_) => peer::Offer,
            Self::Answer(_) => peer::Answer,
            Self::Commit => peer::Commit,
            Self::Withdraw => peer::Withdraw,
            Self::Over => peer::Over,
            Self::Nak(_) => peer::Nak,
        }
    }

    fn mandatory(&self) -> bool {
        !matches!(self, Self::Nak(_))
    }

    fn carries(&self) -> Carries {
        match self {
            Self::Offer(offer) => {
                let count = offer.connections.iter().map(Offered::descriptors).sum();
                Carries { kind: DescriptorKind::Connection, least: count, most: count }
            }
            Self::Hello(_)
            | Self::Answer(_)
            | Self::Commit
            | Self::Withdraw
            | Self::Over
            | Self::Nak(_) => Carries::NOTHING,
        }
    }

    fn write(&self, out: &mut Writer) -> Result<(), CodecError> {
        match self {
            Self::Hello(body) => body.write(out),
            Self::Offer(body) => body.write(out),
            Self::Answer(body) => body.write(out),
            Self::Nak(body) => body.write(out),
            Self::Commit | Self::Withdraw | Self::Over => Ok(()),
        }
    }

    fn read(kind: Kind, fields: &mut Fields<'_>) -> Option<Result<Self, CodecError>> {
        Some(match kind {
            peer::Hello => Body::read(fields).map(Self::Hello),
            peer::Offer => Body::read(fields).map(Self::Offer),
            peer::Answer => Body::read(fields).map(Self::Answer),
            peer::Commit => Ok(Self::Commit),
            peer::Withdraw => Ok(Self::Withdraw),
            peer::Over => Ok(Self::Over),
            peer::Nak => Body::read(fields).map(Self::Nak),
            _ => return None,
        })
    }

    fn nak(nak: Nak) -> Self {
        Self::Nak(nak)
    }
}
