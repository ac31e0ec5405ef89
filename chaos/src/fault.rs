//! What a drill does to the leader.

/// A fault of the leader. All but a death leave it alive, and unfit to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// Each fsync takes a tenth of a second longer.
    SlowDisk,
    /// No write to its disk and no fsync returns.
    HungDisk,
    /// It sees nothing of its source.
    Blind,
    /// One record that it reads is another one than the others read.
    WrongRecord,
    /// Its config has another definition of the pipeline.
    Drift,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Kill,
        Self::SlowDisk,
        Self::HungDisk,
        Self::Blind,
        Self::WrongRecord,
        Self::Drift,
    ];

    /// As it is given on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::SlowDisk => "slow-disk",
            Self::HungDisk => "hung-disk",
            Self::Blind => "blind",
            Self::WrongRecord => "wrong-record",
            Self::Drift => "drift",
        }
    }

    /// What the leader is then.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::SlowDisk => "with a slow disk",
            Self::HungDisk => "with a disk that hangs",
            Self::Blind => "blind to its source",
            Self::WrongRecord => "with a wrong record",
            Self::Drift => "with another config",
        }
    }
}

impl std::str::FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|fault| fault.name() == text);
        named.ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            format!("not one of {}", names.join(", "))
        })
    }
}
