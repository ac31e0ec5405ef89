//! What others have, and what is here.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use unisono_engine::row::{Seq, StreamId};
use unisono_replication::rt;

use super::question::{MOST_BYTES, Question, Told, decode, encode};
use crate::core::Core;
use crate::doubt::Dispute;
use crate::ids::key_of;

/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(1);

/// Streams, and of each up to which row.
pub(crate) type Asked = Vec<(StreamId, u64)>;

/// The voters but this one, and how many there are with it.
#[must_use]
pub fn others(core: &Core) -> (Vec<u16>, usize) {
    let mut voters = core.replica.view().borrow().voters.clone();
    let count = voters.len();
    voters.retain(|&number| number != core.config.node.id);
    (voters, count)
}

/// Asks one of them; `rows`: so many rows from there on are wanted too.
pub(crate) async fn one(core: &Core, peer: u16, of: &Asked, rows: u32) -> io::Result<Vec<Told>> {
    let streams = of.iter().map(|&(stream, next)| (key_of(stream), next));
    let question = encode(&Question {
        of: streams.collect(),
        rows,
    });
    let answer = rt::timeout(WITHIN, core.replica.ask(peer, question)).await;
    let answer = answer.map_err(|_| io::Error::other("no answer"))??;
    let told = decode(&answer)?.of;
    match told.len() == of.len() {
        true => Ok(told),
        false => Err(io::Error::other("an answer to another question")),
    }
}

/// Asks all other voters; who does not answer is left out.
pub(crate) async fn all(core: &Core, of: &Asked) -> BTreeMap<u16, Vec<Told>> {
    let mut heard = BTreeMap::new();
    for number in others(core).0 {
        match one(core, number, of, 0).await {
            Ok(told) => drop(heard.insert(number, told)),
            Err(error) => tracing::debug!(number, %error, "a peer does not tell its rows"),
        }
    }
    heard
}

/// The same of this one.
pub(crate) async fn own(core: &Arc<Core>, of: &Asked, rows: u32) -> Vec<Told> {
    let (core, of) = (Arc::clone(core), of.clone());
    let looked = rt::blocking(move || {
        let look = |&(stream, next): &(StreamId, u64)| look(&core, stream, next, rows);
        of.iter().map(look).collect()
    });
    looked.await.unwrap_or_default()
}

/// What is here of a stream.
pub(crate) fn look(core: &Core, stream: StreamId, next: u64, rows: u32) -> Told {
    if Seq(next) > core.results.next_seq(stream) {
        return Told::default();
    }
    // What cannot be read here somebody else may know.
    let digest = core.results.digest_before(stream, Seq(next)).ok().flatten();
    let most = usize::try_from(rows).unwrap_or(0);
    let rows = core.results.read(stream, Seq(next), most, MOST_BYTES);
    let rows = rows.unwrap_or_default().into_iter();
    Told {
        digest: digest.map(|digest| digest.0),
        rows: rows.map(|row| row.json).collect(),
    }
}

/// The first row of a stream that a peer has otherwise: what one of both holds no more is taken for alike.
pub(crate) async fn first_other(
    core: &Arc<Core>,
    peer: u16,
    stream: StreamId,
    dispute: Dispute,
) -> io::Result<u64> {
    let (mut alike, mut other) = (dispute.below, dispute.next);
    while other.saturating_sub(alike) > 1 {
        let middle = alike + (other - alike) / 2;
        let of = vec![(stream, middle)];
        let theirs = one(core, peer, &of, 0).await?;
        let here = own(core, &of, 0).await;
        let differs =
            theirs
                .iter()
                .zip(&here)
                .any(|(theirs, here)| match (theirs.digest, here.digest) {
                    (Some(theirs), Some(here)) => theirs != here,
                    _ => false,
                });
        match differs {
            true => other = middle,
            false => alike = middle,
        }
    }
    Ok(alike)
}
