//! One variant for each thing that a caller does next.

use std::io;
use std::path::PathBuf;

/// Why a replica did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The config cannot work; correct it.
    #[error("the replica's configuration is wrong: {0}")]
    Config(String),
    /// Another process has the log open; stop it.
    #[error(
        "{} is in use by another process; stop it, or give this replica a folder of its own",
        .path.display()
    )]
    InUse {
        /// The folder of the log.
        path: PathBuf,
    },
    /// The log cannot be read. Without its votes this node must not take part as it was.
    #[error(
        "{} is damaged: {cause}; if the other replicas run, move the replica's folder away and start again: \
         it rejoins as a new learner",
        .path.display()
    )]
    Damaged {
        /// The folder of the log.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// Another version of the program wrote the log, which is not carried over.
    #[error(
        "{} has format {found}, this Unisono reads format {reads}: run the version that wrote it, or wipe the data \
         directories of all replicas (while all are stopped) and let them read the sources again",
        .path.display()
    )]
    OtherVersion {
        /// The folder of the log.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format that this program reads.
        reads: u32,
    },
    /// A version of the program that kept its log otherwise was here; its log is not carried over.
    #[error(
        "{} is the log of an earlier version, this Unisono reads format {reads}: run the version that wrote it, or wipe the \
         data directories of all replicas (while all are stopped) and let them read the sources again",
        .path.display()
    )]
    Earlier {
        /// Its file.
        path: PathBuf,
        /// The format that this program reads.
        reads: u32,
    },
    /// The log belongs to another replica; correct the config.
    #[error(
        "{} belongs to replica {stored}, but the configuration says {configured}; \
         correct the number or the folder",
        .path.display()
    )]
    WrongNumber {
        /// The folder of the log.
        path: PathBuf,
        /// The number it was made for.
        stored: u16,
        /// The number in the config.
        configured: u16,
    },
    /// A file or folder cannot be used.
    #[error("cannot use {}: {cause}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// The entries between the newest whole checkpoint and the log's first entry are gone: there is nothing to go on from.
    #[error(
        "the newest whole checkpoint stands at entry {checkpoint}, but {} begins after entry {purged}: a newer \
         checkpoint is damaged or gone; if the other replicas run, move the data directory away and start again: \
         it rejoins as a new learner",
        .path.display()
    )]
    Hole {
        /// The folder of the log.
        path: PathBuf,
        /// Where the checkpoint stands, 0 without one.
        checkpoint: u64,
        /// The last entry that was purged.
        purged: u64,
    },
    /// The checkpoint or the log cannot be loaded.
    #[error("raft did not start: {0}")]
    Raft(String),
    /// A thread, the listener or the client for peers cannot be set up.
    #[error("cannot set up the replica's runtime: {0}")]
    Runtime(io::Error),
}

/// What became of a proposal that did not succeed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProposeError {
    /// Nothing was written. Ask the leader, if there is one.
    #[error("not the leader; the leader is {leader:?}")]
    NotLeader {
        /// Number of the leader, where known.
        leader: Option<u16>,
    },
    /// The entry may or may not come to be committed: look for it in the log.
    #[error("leadership changed during the proposal; it may or may not be committed")]
    Unknown,
    /// The replica is stopping, or its disk failed.
    #[error("the replica is shut down")]
    Shutdown,
}

/// Why a cursor cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A peer's checkpoint beyond the cursor is being installed, or the entries were purged below a
    /// checkpoint. Load the last checkpoint and make a new cursor there.
    #[error("the log below {snapshot} is replaced by a checkpoint; continue from the checkpoint")]
    Superseded {
        /// Index of the checkpoint.
        snapshot: u64,
    },
    /// The log cannot be read: the disk fails or the log is damaged. End the process.
    #[error("cannot read the raft log: {0}")]
    Io(#[from] io::Error),
}

/// Why no checkpoint was made.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The node could not write its checkpoint; the next attempt may succeed.
    #[error("cannot write a checkpoint: {0}")]
    Build(#[from] io::Error),
    /// The replica is stopping.
    #[error("the replica is shut down")]
    Shutdown,
}

/// Why leadership was not handed over.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HandOverError {
    /// This replica does not lead: nothing to hand over.
    #[error("not the leader")]
    NotLeader,
    /// No other voter answers.
    #[error("no other voter can be reached")]
    NoCandidate,
    /// The chosen one did not come to lead in time; this replica may still lead.
    #[error("replica {to} did not take over in time")]
    TimedOut {
        /// The replica that was asked.
        to: u16,
    },
    /// The replica is stopping.
    #[error("the replica is shut down")]
    Shutdown,
}

/// Why a member was not removed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RemoveError {
    /// This replica does not lead: ask the leader.
    #[error("not the leader; the leader is {leader:?}")]
    NotLeader {
        /// Number of the leader, where known.
        leader: Option<u16>,
    },
    /// Another change is under way: ask again.
    #[error("another change of members is under way; try again in a moment")]
    Changing,
    /// There is no member of that number.
    #[error("node {number} is no member")]
    NoMember {
        /// The number.
        number: u16,
    },
    /// Nobody would be left to vote.
    #[error("node {number} is the only voter")]
    LastVoter {
        /// The number.
        number: u16,
    },
    /// It may or may not be removed: look at the members.
    #[error("whether the member is removed is not known: {0}")]
    Unknown(String),
}
