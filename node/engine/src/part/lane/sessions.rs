//! A lane's open sessions in its part: by group's key and start.

use crate::group::dictionary::Keys;
use crate::group::is_sound;
use crate::lane::LaneEngine;
use crate::part::codec::{Fault, Reader, Writer};
use crate::session::SessionTable;
use crate::spec::PipelineSpec;

pub(super) fn write(table: &SessionTable, keys: &Keys, out: &mut Writer<'_>) {
    let mut sessions: Vec<_> = table.sessions().collect();
    sessions.sort_unstable_by(|(left, _), (right, _)| {
        let order = keys.key(left.group).cmp(keys.key(right.group));
        order.then_with(|| left.start.cmp(&right.start))
    });
    out.length(sessions.len());
    for (session, place) in sessions {
        out.slice(keys.key(session.group));
        out.signed(session.start);
        out.signed(session.end);
        for column in table.columns() {
            column.encode(place as usize, out);
        }
    }
}

pub(super) fn read(
    spec: &PipelineSpec,
    at: usize,
    engine: &mut LaneEngine,
    input: &mut Reader<'_>,
) -> Result<(), Fault> {
    let mut key = Vec::new();
    for _ in 0..input.length()? {
        key.clear();
        key.extend_from_slice(input.slice()?);
        if !is_sound(&key, spec.group_by.len()) {
            return Err(Fault::Damaged("a group's key is damaged"));
        }
        let bounds = (input.signed()?, input.signed()?);
        let restored = engine.restore_session(at, &key, bounds);
        let (columns, place) = restored.ok_or(Fault::Damaged("a session's bounds are damaged"))?;
        for column in columns {
            column.decode(place, input)?;
        }
    }
    Ok(())
}
