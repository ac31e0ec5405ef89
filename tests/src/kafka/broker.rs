//! The broker's process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use unisono_chaos::cluster::free_ports;
use unisono_chaos::gate::Place;

/// One Apache Kafka broker with a folder and ports of its own. It ends when the value is dropped, and within two
/// seconds of the end of this process, whatever ended it.
pub struct TestBroker {
    dir: TempDir,
    port: u16,
    pub(super) gates: Vec<Place>,
    /// As the script wants it: its number, the cluster's id and the controllers' ports.
    pub(super) member: Option<String>,
    /// What else the script is told when it starts the broker.
    pub(super) more: Vec<String>,
}

/// Whether a topic may not be read.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "what they say")]
pub enum Denied {
    Yes,
    No,
}

impl TestBroker {
    /// The broker that all tests of one binary share; each test takes topics of its own. `None` only if
    /// `UNISONO_SKIP_KAFKA=1` says to leave the tests with Kafka out.
    ///
    /// # Panics
    /// If it cannot be started, with what is missing.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<TestBroker> = OnceLock::new();
        (!Self::skipped()).then(|| {
            SHARED.get_or_init(|| match Self::start() {
                Ok(broker) => broker,
                Err(error) => panic!("{error:#}"),
            })
        })
    }

    /// Whether `UNISONO_SKIP_KAFKA=1` says to leave the tests with Kafka out.
    #[must_use]
    pub fn skipped() -> bool {
        std::env::var_os("UNISONO_SKIP_KAFKA").is_some_and(|value| value == "1")
    }

    /// Starts a broker that no other test uses: for tests that stop it.
    ///
    /// # Errors
    /// What is missing, and how to leave the tests with Kafka out.
    pub fn start() -> Result<Self> {
        let mut tries = 3;
        loop {
            let broker = Self::not_started()?;
            tries -= 1;
            match broker.start_again() {
                Ok(()) => return Ok(broker),
                // Between the choice of a port and its use another process may have taken it.
                Err(error) if tries > 0 && format!("{error}").contains("while starting") => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A broker's folder and address, where nothing answers before [`Self::start_again`].
    ///
    /// # Errors
    /// The system's.
    pub fn not_started() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("unisono-kafka-")
            .tempdir()
            .context("could not make a folder for the test broker")?;
        let port = free_port()?;
        let gates = Vec::new();
        Ok(Self {
            dir,
            port,
            gates,
            member: None,
            more: Vec::new(),
        })
    }

    /// Starts a broker that has so many listeners beside, each for clients that come by a gate.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_gated(gates: usize) -> Result<Self> {
        let mut broker = Self::not_started()?;
        for _ in 0..gates {
            broker.add_gate()?;
        }
        broker.start_again()?;
        Ok(broker)
    }

    pub(super) fn add_gate(&mut self) -> Result<()> {
        let (port, behind) = (free_port()?, free_port()?);
        self.gates.push(Place { port, behind });
        Ok(())
    }

    /// The places of its gates.
    #[must_use]
    pub fn gates(&self) -> Vec<Place> {
        self.gates.clone()
    }

    /// Starts the broker after [`Self::kill`], with its old data, at its old address.
    ///
    /// # Errors
    /// What the script says.
    pub fn start_again(&self) -> Result<()> {
        let gates = self.gates.iter();
        let gates: Vec<_> = gates
            .map(|gate| format!("{}={}", gate.behind, gate.port))
            .collect();
        let output = Command::new(script())
            .args(["start", "--port", &self.port.to_string(), "--dir"])
            .arg(self.dir.path())
            .args(["--until", &std::process::id().to_string()])
            .args(["--gates", &gates.join(",")])
            .args(["--member", self.member.as_deref().unwrap_or_default()])
            .args(&self.more)
            .output()
            .context("could not run deploy/kafka/kafka")?;
        if !output.status.success() {
            bail!(
                "{}\nthese tests need a Kafka broker; UNISONO_SKIP_KAFKA=1 leaves them out",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }

    /// Ends the broker's process at once, as a crash does; its data stay.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn kill(&self) -> Result<()> {
        self.signal("-KILL")?;
        while self.signal("-0").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Ok(())
    }

    /// Freezes the broker's process: connections stay, nothing is answered.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn freeze(&self) -> Result<()> {
        self.signal("-STOP")
    }

    /// Lets a frozen broker go on.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn thaw(&self) -> Result<()> {
        self.signal("-CONT")
    }

    /// Puts the records of one topic's first partition in the place of another's, while the broker is not running: what is
    /// left where a log was cut and written anew. The topic keeps its id.
    ///
    /// # Errors
    /// The system's.
    pub fn replace_records(&self, of: &str, by: &str) -> Result<()> {
        let folder = |topic: &str| self.dir.path().join(format!("data/{topic}-0"));
        for entry in std::fs::read_dir(folder(of))? {
            let path = entry?.path();
            // The indexes are made anew.
            if path
                .extension()
                .is_some_and(|kind| kind == "index" || kind == "timeindex")
            {
                std::fs::remove_file(path)?;
            }
        }
        let log = "00000000000000000000.log";
        std::fs::copy(folder(by).join(log), folder(of).join(log))?;
        Ok(())
    }

    /// Forbids everybody to read a topic, or takes that back.
    ///
    /// # Errors
    /// What the script says.
    pub fn deny(&self, topic: &str, denied: Denied) -> Result<()> {
        match denied {
            Denied::Yes => self.run(&["deny", topic]),
            Denied::No => self.run(&["allow", topic]),
        }
    }

    /// Has the script do something with the running broker.
    pub(super) fn run(&self, words: &[&str]) -> Result<()> {
        let output = Command::new(script())
            .args(words)
            .arg("--dir")
            .arg(self.dir.path())
            .output()
            .context("could not run deploy/kafka/kafka")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {said}");
        Ok(())
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let path = self.dir.path().join("pid");
        let pid = std::fs::read_to_string(&path).context("the broker has no pid file")?;
        let status = Command::new("kill")
            .args([signal, pid.trim()])
            .stderr(std::process::Stdio::null())
            .status()?;
        ensure!(status.success(), "no broker process {}", pid.trim());
        Ok(())
    }

    /// Its folder.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// `host:port`, as clients want it.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        // Its folder goes with it: nothing is worth a clean stop.
        let _ = self.kill();
    }
}

/// A free port below those that the system gives to outgoing connections.
pub(super) fn free_port() -> Result<u16> {
    free_ports(1)?.pop().context("no free port")
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kafka/kafka")
}
