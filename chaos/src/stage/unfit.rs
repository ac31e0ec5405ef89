//! Leaders that live and are unfit to lead.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Stage, TAKEOVER_WITHIN};
use crate::fault::Fault;
use crate::slow_disk::Ailment;

/// How long a leader is unfit.
const LASTS: Duration = Duration::from_secs(3);
/// How long a replica that was unfit may take until it has caught up.
const HEALED_WITHIN: Duration = Duration::from_secs(60);
/// A replica that started so lately stands only where no other can.
const SETTLED: Duration = Duration::from_secs(4);
/// The replica whose config drifts: of equals, the lowest number stands.
const DRIFTS: u16 = 1;
/// How many leaders are killed until that one leads.
const KILLS: usize = 5;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A living leader was made unfit.
#[derive(Clone, Copy, Debug)]
pub struct Unfit {
    /// Who it was.
    pub leader: u16,
    /// Who led when the fault ended.
    pub next: u16,
    /// The longest time in which no row of a new window came, or for a drifted config: from the death of the leader before to
    /// the first row.
    pub time: Duration,
}

impl Stage {
    /// Why a fault cannot be dealt here; `None`: it can.
    #[must_use]
    pub fn obstacle(&self, fault: Fault) -> Option<String> {
        match fault {
            Fault::Kill | Fault::Drift => None,
            Fault::SlowDisk | Fault::HungDisk => self.no_slow_disk.clone(),
            Fault::Blind if !self.gates.is_empty() => None,
            Fault::Blind | Fault::WrongRecord => match self.forger {
                Some(_) => None,
                None => Some("all replicas read one broker".to_owned()),
            },
        }
    }

    /// Makes the leader unfit for some seconds, or has one lead that is, and times how long the curve stands still. The
    /// replica is well again in the end.
    ///
    /// # Errors
    /// The fault cannot be dealt here, no rows came for 30 seconds, or the replica did not catch up.
    pub async fn make_unfit(&mut self, fault: Fault) -> Result<Unfit> {
        if let Some(obstacle) = self.obstacle(fault) {
            bail!("no fault {}: {obstacle}", fault.name());
        }
        let unfit = match fault {
            Fault::Kill => bail!("a dead leader is not unfit"),
            Fault::SlowDisk => self.ailing_disk(Ailment::Slow).await?,
            Fault::HungDisk => self.ailing_disk(Ailment::Hung).await?,
            Fault::Blind => self.blind().await?,
            Fault::WrongRecord => self.wrong_record().await?,
            Fault::Drift => self.drift().await?,
        };
        self.cluster.ensure_none_crashed()?;
        self.times.entry(fault).or_default().push(unfit.time);
        Ok(unfit)
    }

    async fn ailing_disk(&mut self, ailment: Ailment) -> Result<Unfit> {
        let leader = self.cluster.wait_leader().await?;
        let disks = self.slow_disks.as_ref().context("no slow disks")?;
        disks.ail(leader, ailment)?;
        let time = self.standstill().await;
        let not_ready = match ailment {
            Ailment::Slow => Ok(()),
            Ailment::Hung => self.says_it_hangs(leader).await,
        };
        disks.heal(leader, ailment)?;
        not_ready?;
        let next = self.cluster.wait_leader().await?;
        ensure!(
            ailment == Ailment::Slow || next != leader,
            "replica {leader} leads on, and its disk hangs"
        );
        self.healed().await?;
        Ok(Unfit {
            leader,
            next,
            time: time?,
        })
    }

    /// Has the disk of a replica that does not lead hang for some seconds: the curve goes on, and the replica says that it is not
    /// ready. Gives the longest time without a row of a new window.
    ///
    /// # Errors
    /// No rows came for 30 seconds, the replica did not say it, or did not catch up.
    pub async fn hang_follower(&mut self) -> Result<Duration> {
        let leader = self.cluster.wait_leader().await?;
        let mut others = self.cluster.addresses().into_keys();
        let follower = others.find(|&number| number != leader).context("alone")?;
        let disks = self.slow_disks.as_ref().context("no slow disks")?;
        disks.ail(follower, Ailment::Hung)?;
        let time = self.standstill().await;
        let not_ready = self.says_it_hangs(follower).await;
        disks.heal(follower, Ailment::Hung)?;
        not_ready?;
        self.healed().await?;
        self.cluster.ensure_none_crashed()?;
        time
    }

    async fn blind(&mut self) -> Result<Unfit> {
        let leader = self.cluster.wait_leader().await?;
        self.set_blind(leader, true)?;
        let time = self.standstill().await;
        let next = self.cluster.wait_leader().await?;
        self.set_blind(leader, false)?;
        ensure!(next != leader, "replica {leader} leads on, and is blind");
        self.healed().await?;
        Ok(Unfit {
            leader,
            next,
            time: time?,
        })
    }

    /// A replica is not ready, and says why.
    async fn says_it_hangs(&self, number: u16) -> Result<()> {
        let said = self.cluster.not_ready(number).await.context("no answer")?;
        let hangs = said.iter().any(|reason| reason.contains("disk hangs"));
        ensure!(hangs, "replica {number} says of itself: {said:?}");
        Ok(())
    }

    /// Moves a replica's input out of its sight or back, or shuts its gate to the broker or opens it.
    fn set_blind(&self, number: u16, blind: bool) -> Result<()> {
        if let Some(gate) = self.gates.get(usize::from(number) - 1) {
            if blind {
                gate.shut();
            } else {
                gate.open();
            }
            return Ok(());
        }
        let input = |name: &str| self.cluster.folder(number).join(name);
        let (from, to) = match blind {
            true => ("input", "hidden"),
            false => ("hidden", "input"),
        };
        Ok(std::fs::rename(input(from), input(to))?)
    }

    async fn wrong_record(&mut self) -> Result<Unfit> {
        let leader = self.cluster.wait_leader().await?;
        let forger = self.forger.clone().context("no copies of the input")?;
        forger.forge(usize::from(leader) - 1);
        let deadline = Instant::now() + TAKEOVER_WITHIN;
        while !forger.is_done() {
            ensure!(Instant::now() < deadline, "no order to forge came");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let time = self.standstill().await;
        let next = self.cluster.wait_leader().await?;
        forger.repair()?;
        ensure!(
            next != leader,
            "replica {leader} leads on with a wrong record"
        );
        self.healed().await?;
        Ok(Unfit {
            leader,
            next,
            time: time?,
        })
    }

    /// Starts a replica with another definition of the pipeline, and kills leaders until it leads.
    async fn drift(&mut self) -> Result<Unfit> {
        let file = self.config_of(DRIFTS);
        let right = std::fs::read_to_string(&file)?;
        let wrong = right.replace("max(amount)", "min(amount)");
        ensure!(wrong != right, "the config has no such value");
        self.restart_with(&wrong).await?;
        let view = self.cluster.view(DRIFTS).await.context("no answer")?;
        ensure!(!view.drifts.is_empty(), "replica {DRIFTS} shows no drift");
        tokio::time::sleep(SETTLED).await;
        let mut won = None;
        for _ in 0..KILLS {
            let killed = self.cluster.wait_leader().await?;
            let time = self.time_kill(killed).await?;
            let next = self.cluster.wait_leader().await?;
            if next == DRIFTS {
                // Rows that it publishes while it leads: by its own config each would be wrong.
                self.wait_for_new_row(TAKEOVER_WITHIN).await?;
            }
            self.cluster.restart(killed)?;
            self.cluster.wait_ready().await?;
            if next == DRIFTS {
                won = Some(time);
                break;
            }
        }
        self.restart_with(&right).await?;
        let time = won.with_context(|| format!("replica {DRIFTS} never came to lead"))?;
        let (leader, next) = (DRIFTS, self.cluster.wait_leader().await?);
        Ok(Unfit { leader, next, time })
    }

    fn config_of(&self, number: u16) -> PathBuf {
        self.cluster.folder(number).with_extension("toml")
    }

    async fn restart_with(&mut self, config: &str) -> Result<()> {
        std::fs::write(self.config_of(DRIFTS), config)?;
        self.cluster.terminate(DRIFTS).await?;
        self.cluster.restart(DRIFTS)?;
        self.cluster.wait_ready().await
    }

    /// The longest time without a row of a new window while the fault lasts, which is the fault itself.
    async fn standstill(&self) -> Result<Duration> {
        self.watch.start_standstill();
        tokio::time::sleep(LASTS).await;
        // One that still lasts is measured to its end.
        let deadline = Instant::now() + TAKEOVER_WITHIN;
        let now_ms = self.clock.now_ms();
        let went_on = self.watch.first_row_ending_after(now_ms, deadline).await;
        let time = self.watch.end_standstill();
        went_on.context("the curve stands still")?;
        Ok(time)
    }

    /// Waits until every replica has come as far as the furthest is now.
    async fn healed(&mut self) -> Result<()> {
        let healed = tokio::time::timeout(HEALED_WITHIN, self.cluster.wait_ready()).await;
        healed.context("the replica that was unfit does not catch up")?
    }
}
