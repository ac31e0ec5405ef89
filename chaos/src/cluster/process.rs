//! One replica process.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

const LOG_END_LINES: usize = 8;

/// A `unisono serve` process that can be started again on the same config; it is killed when dropped.
#[derive(Debug)]
pub(super) struct NodeProcess {
    binary: PathBuf,
    config: PathBuf,
    log: PathBuf,
    address: String,
    environment: Vec<(String, String)>,
    /// The same at each start.
    kept: Vec<(String, String)>,
    child: Option<Child>,
}

impl NodeProcess {
    pub(super) fn new(binary: &Path, config: PathBuf, log: PathBuf, address: String) -> Self {
        Self {
            binary: binary.to_owned(),
            config,
            log,
            address,
            environment: Vec::new(),
            kept: Vec::new(),
            child: None,
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// What the process finds in its environment from its next start on.
    pub(super) fn set_environment(&mut self, variables: &[(&str, &str)]) {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        self.environment = variables.iter().map(owned).collect();
    }

    /// What the process finds in its environment at each start, whatever else.
    pub(super) fn keep_in_environment(&mut self, variables: Vec<(String, String)>) {
        self.kept = variables;
    }

    pub(super) fn start(&mut self) -> Result<()> {
        if self.is_running() {
            bail!("{} runs already", self.config.display());
        }
        let open = || -> std::io::Result<(File, File)> {
            let log = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.log)?;
            Ok((log.try_clone()?, log))
        };
        let (out, err) = open().with_context(|| format!("cannot open {}", self.log.display()))?;
        let config = std::path::absolute(&self.config)?;
        // A folder of its own: under `/proc/self/cwd` each replica finds its own files.
        let folder = config.with_extension("");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let child = Command::new(&self.binary)
            .current_dir(&folder)
            .arg("serve")
            .arg("--config")
            .arg(&config)
            .envs(self.kept.iter().map(|(name, value)| (name, value)))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            // It ends when this process is gone, however that came about.
            .args(["--parent-pid", &std::process::id().to_string()])
            // Ctrl-C at the terminal is for the drill alone: it ends its replicas itself.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        self.child = Some(child);
        Ok(())
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// The status with which it ended without being told to.
    pub(super) fn crashed(&mut self) -> Option<ExitStatus> {
        self.child
            .as_mut()
            .and_then(|child| child.try_wait().ok().flatten())
    }

    /// An end that was asked for is no crash.
    pub(super) fn forget_ended(&mut self) {
        if !self.is_running() {
            self.child = None;
        }
    }

    pub(super) fn signal(&mut self, signal: Signal) -> Result<()> {
        let config = self.config.display();
        let child = self
            .child
            .as_ref()
            .with_context(|| format!("{config} does not run"))?;
        kill_process(Pid::from_child(child), signal)
            .with_context(|| format!("cannot signal {config}"))
    }

    /// SIGKILL without waiting for the end; to be followed by `kill`.
    pub(super) fn send_kill(&mut self) -> Result<()> {
        match &mut self.child {
            Some(child) => child.kill().context("cannot kill a replica"),
            None => Ok(()),
        }
    }

    /// SIGKILL, and waits until the process is gone.
    pub(super) fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        child.kill().context("cannot kill a replica")?;
        child.wait().context("cannot wait for a killed replica")?;
        Ok(())
    }

    pub(super) fn log_end(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_END_LINES)..].join("\n")
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // A process that has ended already cannot be killed, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
