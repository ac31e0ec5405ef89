//! Which sessions close when the watermark moves, over all lanes.
//!
//! A session closes when it is over on all lanes together: its lanes' parts overlap each other, and the
//! last of them ends at or before the watermark. A record that is in time comes at or after its lane's
//! watermark, so at or after the feed's, and belongs to no session that ended before: what was closed
//! can never grow. Rows go by end and group; no group has two sessions with one end, and what closes
//! later ends later, so how records are split into ticks does not show.

use std::ops::Range;

use super::{Session, columns_of};
use crate::having::Having;
use crate::lane::{LaneEngine, LaneTables};
use crate::render::RowWriter;
use crate::revise::Standing;
use crate::row::{Digest, RowRef, Seq};
use crate::spec::{PipelineSpec, Timestamp, ValueSpec};
use crate::value::Column;

/// One lane's part of a session.
#[derive(Clone, Copy, Debug)]
struct Part {
    lane: usize,
    session: Session,
    place: u32,
}

/// Parts of one group that overlap, one after another.
#[derive(Clone, Debug)]
struct Union {
    start: i64,
    end: i64,
    parts: Range<usize>,
}

/// Sorts parts by group and start, and finds what belongs together.
fn unions<'a>(parts: &mut [Part], key: impl Fn(&Part) -> &'a [u8]) -> Vec<Union> {
    parts.sort_unstable_by(|left, right| {
        let keys = key(left).cmp(key(right));
        let starts = || left.session.start.cmp(&right.session.start);
        keys.then_with(starts)
            .then_with(|| left.lane.cmp(&right.lane))
    });
    let mut unions: Vec<Union> = Vec::new();
    let mut previous: Option<&Part> = None;
    for (at, part) in parts.iter().enumerate() {
        let Session { start, end, .. } = part.session;
        let is_same = previous.is_some_and(|previous| key(previous) == key(part));
        previous = Some(part);
        match unions.last_mut() {
            Some(union) if is_same && start < union.end => {
                union.end = union.end.max(end);
                union.parts.end = at.saturating_add(1);
            }
            _ => unions.push(Union {
                start,
                end,
                parts: at..at.saturating_add(1),
            }),
        }
    }
    unions
}

/// Sessions that closed, in the order of their rows.
#[derive(Debug, Default)]
pub(crate) struct ClosedSessions {
    sessions: Vec<ClosedSession>,
    /// Of all of them, one after another.
    keys: Vec<u8>,
    columns: Vec<Column>,
}

#[derive(Debug)]
pub(crate) struct ClosedSession {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// In the keys.
    key: Range<usize>,
    /// In the columns.
    pub(crate) place: usize,
}

impl ClosedSessions {
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Each with its group's key.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&ClosedSession, &[u8])> {
        let sessions = self.sessions.iter();
        sessions.map(|session| (session, &self.keys[session.key.clone()]))
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Takes a session with all its parts from the lanes, unless it is not over: some lane has
    /// more of it.
    fn take(
        &mut self,
        pipeline: usize,
        (union, parts): (&Union, &[Part]),
        through: Timestamp,
        lanes: &mut [&mut LaneEngine],
    ) {
        let Some(first) = parts.first() else { return };
        let key = lanes[first.lane].group_key(pipeline, first.session.group);
        let longer = lanes.iter().filter_map(|lane| {
            let found = lane.last_session_from(pipeline, key, through)?;
            (found.start < union.end && found.end > through.0).then_some(found.end)
        });
        if let Some(end) = longer.max() {
            // It goes on elsewhere: not before that is over can all of it be.
            for part in parts {
                if let Some((sessions, _)) = lanes[part.lane].sessions_mut(pipeline) {
                    sessions.wait_until(part.place, end);
                }
            }
            return;
        }
        let (first_byte, place) = (self.keys.len(), self.sessions.len());
        self.keys.extend_from_slice(key);
        self.sessions.push(ClosedSession {
            start: union.start,
            end: union.end,
            key: first_byte..self.keys.len(),
            place,
        });
        for part in parts {
            let Some((sessions, dictionary)) = lanes[part.lane].sessions_mut(pipeline) else {
                continue;
            };
            for (column, from) in self.columns.iter_mut().zip(sessions.columns()) {
                column.merge_at(place, from, part.place as usize);
            }
            sessions.remove(part.place, dictionary);
        }
    }
}

/// Takes the sessions that are over at `through` from the lanes.
pub(crate) fn close(
    pipeline: usize,
    values: &[ValueSpec],
    through: Timestamp,
    lanes: &mut [&mut LaneEngine],
) -> ClosedSessions {
    let mut parts = Vec::new();
    for (lane, engine) in lanes.iter_mut().enumerate() {
        let Some((sessions, _)) = engine.sessions_mut(pipeline) else {
            continue;
        };
        let ended = sessions.ended(through.0).into_iter();
        parts.extend(ended.map(|(session, place)| Part {
            lane,
            session,
            place,
        }));
    }
    if parts.is_empty() {
        return ClosedSessions::default();
    }
    let unions = unions(&mut parts, |part| {
        lanes[part.lane].group_key(pipeline, part.session.group)
    });
    let mut closed = ClosedSessions {
        columns: columns_of(values, unions.len()),
        ..ClosedSessions::default()
    };
    for union in &unions {
        let parts = &parts[union.parts.clone()];
        closed.take(pipeline, (union, parts), through, lanes);
    }
    // They are in the order of their groups, which stays among those of one end.
    closed.sessions.sort_by_key(|session| session.end);
    closed
}

/// Calls `emit` with the present values of open sessions as far as they are known, over all lanes, by
/// end and group, until it says that it has enough.
pub(crate) fn show_open(
    spec: &PipelineSpec,
    lanes: &[LaneTables],
    emit: &mut dyn FnMut(RowRef<'_>) -> bool,
) {
    let mut parts = Vec::new();
    for (lane, tables) in lanes.iter().enumerate() {
        let sessions = tables.sessions.iter().flat_map(|table| table.sessions());
        parts.extend(sessions.map(|(session, place)| Part {
            lane,
            session,
            place,
        }));
    }
    let key_of = |part: &Part| lanes[part.lane].keys.key(part.session.group);
    let mut unions = unions(&mut parts, key_of);
    unions.sort_by_key(|union| union.end);
    let mut columns = columns_of(&spec.values, 1);
    let mut writer = RowWriter::new(spec);
    let mut having = Having::new(spec);
    for union in unions {
        let parts = &parts[union.parts];
        let Some(first) = parts.first() else { continue };
        columns.iter_mut().for_each(|column| column.reset(0));
        for part in parts {
            let from = lanes[part.lane].sessions.iter();
            for (column, from) in columns
                .iter_mut()
                .zip(from.flat_map(|table| table.columns()))
            {
                column.merge_at(0, from, part.place as usize);
            }
        }
        writer.window(union.start, union.end);
        let (key, length) = (key_of(first), writer.length());
        let having = having.as_mut();
        if having.is_some_and(|it| !it.keeps(key, &columns, 0, length)) {
            continue;
        }
        let (json, group) = writer.row(None, Standing::FIRST, key, &columns, 0);
        let goes_on = emit(RowRef {
            seq: Seq(0),
            start: Timestamp(union.start),
            end: Timestamp(union.end),
            digest: Digest::default(),
            json,
            group,
        });
        if !goes_on {
            return;
        }
    }
}
