//! Rows that differ are kept before right ones take their place.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use unisono_engine::row::{StreamId, StreamKind};
use unisono_replication::command::FeedId;
use unisono_replication::rt;

use crate::alike::{MOST_ROWS, Told, first_other, one, own};
use crate::core::Core;
use crate::doubt::Doubt;

/// The folder in the data directory.
const FOLDER: &str = "evidence";
/// Files that are kept; each holds at most two hundred rows, or 128 KiB of them, of each stream.
const MOST_FILES: usize = 16;

/// What one stream's rows were, here and at a peer.
#[derive(Serialize)]
struct Kept {
    incarnation: u64,
    stream: &'static str,
    /// The first row that differs.
    from: u64,
    here: Vec<String>,
    /// `None`: no peer showed its own.
    peer: Option<u16>,
    there: Vec<String>,
}

/// Finds the first rows that one of these peers has otherwise, and keeps them with those that follow, of both. Narrows what is
/// in dispute. If none of them answers, what is here is kept.
pub(super) async fn keep(core: &Arc<Core>, feed: FeedId, peers: impl IntoIterator<Item = u16>) {
    let doubt = core.doubts.board().of(feed).cloned();
    let Some(doubt) = doubt else { return };
    let mut kept = None;
    for peer in peers {
        match compare(core, feed, &doubt, peer).await {
            Ok(found) => {
                kept = Some(found);
                break;
            }
            Err(error) => {
                tracing::warn!(feed = feed.0, peer, %error, "a peer does not show its rows")
            }
        }
    }
    let kept = match kept {
        Some(kept) => kept,
        None => {
            let mut kept = Vec::new();
            for (&stream, dispute) in &doubt.streams {
                let here = own(core, &vec![(stream, dispute.below)], MOST_ROWS).await;
                kept.push(Kept::of(stream, dispute.below, &here, None));
            }
            kept
        }
    };
    let folder = core.config.data_dir.join(FOLDER);
    let name = format!("feed-{}-{:013}.json", feed.0, rt::wall().as_millis());
    let written = rt::blocking(move || write(&folder, &name, &kept)).await;
    match written.and_then(|written| written) {
        Ok(path) => {
            let path = path.display().to_string();
            tracing::warn!(
                feed = feed.0,
                path,
                "rows that differ from another replica's are kept as evidence"
            );
            core.doubts
                .board()
                .change(feed, |doubt| doubt.evidence = Some(path));
        }
        Err(error) => {
            tracing::error!(feed = feed.0, %error, "rows that differ are not kept as evidence");
        }
    }
}

async fn compare(
    core: &Arc<Core>,
    feed: FeedId,
    doubt: &Doubt,
    peer: u16,
) -> io::Result<Vec<Kept>> {
    let mut kept = Vec::new();
    for (&stream, &dispute) in &doubt.streams {
        let from = match dispute.computed {
            Some(_) => dispute.below,
            None => first_other(core, peer, stream, dispute).await?,
        };
        core.doubts.board().change(feed, |doubt| {
            if let Some(known) = doubt.streams.get_mut(&stream) {
                known.below = from;
            }
        });
        let of = vec![(stream, from)];
        let there = one(core, peer, &of, MOST_ROWS).await?;
        let here = own(core, &of, MOST_ROWS).await;
        kept.push(Kept::of(stream, from, &here, Some((peer, &there))));
    }
    Ok(kept)
}

impl Kept {
    fn of(stream: StreamId, from: u64, here: &[Told], there: Option<(u16, &[Told])>) -> Self {
        Self {
            incarnation: stream.incarnation.0,
            stream: match stream.kind {
                StreamKind::Rows => "rows",
                StreamKind::DeadLetters => "dead_letters",
            },
            from,
            here: texts(here),
            peer: there.map(|(peer, _)| peer),
            there: there.map_or_else(Vec::new, |(_, told)| texts(told)),
        }
    }
}

fn texts(told: &[Told]) -> Vec<String> {
    let rows = told.iter().flat_map(|told| &told.rows);
    rows.map(|row| String::from_utf8_lossy(row).into_owned())
        .collect()
}

fn write(folder: &Path, name: &str, kept: &[Kept]) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join(name);
    let mut file = fs::File::create(&path)?;
    file.write_all(&serde_json::to_vec_pretty(kept)?)?;
    file.sync_data()?;
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    files.sort();
    files.truncate(files.len().saturating_sub(MOST_FILES));
    for (_, old) in files.iter().filter(|(_, old)| *old != path) {
        fs::remove_file(old)?;
    }
    Ok(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_files_is_kept_the_newest_ones() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(FOLDER);
        for number in 0..MOST_FILES + 3 {
            let name = format!("feed-1-{number:013}.json");
            let written = write(&folder, &name, &[]).unwrap();
            // As the system's clock may be coarse.
            let age = std::time::Duration::from_secs(number as u64);
            let file = fs::File::options().write(true).open(written).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH + age)
                .unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names.len(), MOST_FILES);
        assert_eq!(names[0], "feed-1-0000000000003.json");
    }
}
