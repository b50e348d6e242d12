//! How far a run is, while it runs: a bar where standard error is a terminal, elsewhere a plain
//! line now and then, for runs that last.
//!
//! Ranks count what they have done in words that others of their host can see; a thread of the
//! first rank of each host looks at them, so that nothing is shown by whoever measures. For the
//! rates over time each of these threads keeps what it has seen, whether it is shown or not.
//! The root's thread shows it: what others have seen they tell it (`hosts`). If somebody does
//! not, all are taken to be as far as those of whom it knows, and it is said how many these are,
//! but not how many ranks are done, nor what is left when they go on after a stonewall.

mod hosts;
mod series;

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub use series::{Sample, Series};

use crate::comm::Communicator;
use crate::error::Result;
use crate::size::MIB;
use hosts::{Hosts, Told};
use series::Samples;

/// Time between two looks for the bar.
const LOOK: Duration = Duration::from_millis(250);
/// Phases that are shorter have no line.
const FIRST_LINE: Duration = Duration::from_secs(1);
/// Time between two lines.
const NEXT_LINE: Duration = Duration::from_secs(10);

/// A phase as it is shown.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// What is done: `write`.
    pub name: &'static str,
    /// Which repetition, from 0.
    pub repetition: usize,
    /// Of how many.
    pub of: usize,
    /// Operations of a rank, if nothing stops it; 0 if nobody knows.
    pub per_rank: u64,
    /// Bytes of an operation, or 0 if it moves none.
    pub bytes: u64,
    /// Seconds after which it is stopped, or 0.
    pub deadline_s: u64,
    /// Whether ranks then go on to where the fastest one is.
    pub wear_out: bool,
}

/// In which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Quiet,
    Bar,
    Lines,
}

#[derive(Debug, Default)]
struct State {
    stage: Option<(Stage, Instant)>,
    /// Phases so far: all ranks that look have begun as many.
    number: u64,
    bar: Option<ProgressBar>,
    samples: Samples,
    over: bool,
}

/// Shows how far a run is.
#[derive(Debug)]
pub struct Progress {
    form: Form,
    /// Whether this rank looks at counts: the first of its host, and who alone sees its own.
    looks: bool,
    /// The way from other hosts, if there are some and it is shown.
    hosts: Option<Hosts>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A phase that is shown until this is dropped.
#[derive(Debug)]
pub struct Shown<'a>(&'a Progress);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if self.0.looks {
            let mut state = self.0.state();
            state.stage = None;
            if let Some(bar) = state.bar.take() {
                bar.finish_and_clear();
            }
        }
    }
}

impl Shown<'_> {
    /// The rates of the phase, which is over; all ranks together.
    pub fn series(&self, comm: &dyn Communicator) -> Result<Series> {
        let mut samples = Vec::new();
        if self.0.looks {
            let state = self.0.state();
            if let Some((_, since)) = state.stage {
                let done = Seen::here(comm).done;
                samples =
                    state.samples.until(Sample { seconds: since.elapsed().as_secs_f64(), done });
            }
        }
        Series::gather(comm, &samples)
    }
}

/// What the ranks that can be seen have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    ranks: u64,
    done: u64,
    /// How many of them are done.
    over: u64,
    /// The counts of the slowest and of the fastest of them.
    slowest: u64,
    fastest: u64,
}

impl Seen {
    /// Those whose counts are in memory that this rank sees.
    fn here(comm: &dyn Communicator) -> Self {
        let mut seen = Self { ranks: 0, done: 0, over: 0, slowest: u64::MAX, fastest: 0 };
        for rank in 0..comm.size() {
            let Some(count) = comm.done(rank) else { continue };
            let count = count.load(Ordering::Relaxed);
            let over = comm.over(rank).is_some_and(|over| over.load(Ordering::Relaxed) != 0);
            seen.one(1, count, over.into(), (count, count));
        }
        seen
    }

    fn one(&mut self, ranks: u64, done: u64, over: u64, (slowest, fastest): (u64, u64)) {
        self.ranks = self.ranks.saturating_add(ranks);
        self.done = self.done.saturating_add(done);
        self.over = self.over.saturating_add(over);
        self.slowest = self.slowest.min(slowest);
        self.fastest = self.fastest.max(fastest);
    }

    /// Those of another host, too.
    fn add(&mut self, told: &Told) {
        self.one(told.ranks, told.done, told.over, (told.slowest, told.fastest));
    }

    /// As it is told by a rank.
    fn told(&self, rank: usize, stage: u64) -> Told {
        let Self { ranks, done, over, slowest, fastest } = *self;
        Told { stage, rank: rank as u64, ranks, done, over, slowest: slowest.min(fastest), fastest }
    }
}

/// Ends the thread, also when the work panics.
struct Over<'a>(&'a Progress);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.changed.notify_all();
    }
}

impl Progress {
    /// Does work while its progress is shown; the root's, unless it is to be quiet.
    pub fn around<T>(comm: &dyn Communicator, quiet: bool, work: impl FnOnce(&Self) -> T) -> T {
        let form = match quiet || !comm.is_root() {
            true => Form::Quiet,
            false if stderr().is_terminal() => Form::Bar,
            false => Form::Lines,
        };
        let looks = (0..comm.rank()).all(|rank| comm.done(rank).is_none());
        let hosts = if quiet { None } else { Hosts::meet(comm) };
        let (state, changed) = (Mutex::default(), Condvar::new());
        let progress = Self { form, looks, hosts, state, changed };
        if !looks {
            return work(&progress);
        }
        thread::scope(|scope| {
            let _over = Over(&progress);
            scope.spawn(|| progress.draw(comm));
            work(&progress)
        })
    }

    /// Shows a phase; begun before its time is taken, and dropped after.
    pub fn show(&self, stage: Stage) -> Shown<'_> {
        if self.looks {
            let mut state = self.state();
            state.samples.clear();
            state.stage = Some((stage, Instant::now()));
            state.number += 1;
        }
        Shown(self)
    }

    /// What a line would say now, if there is anything to say.
    #[cfg(test)]
    pub(crate) fn line(&self, comm: &dyn Communicator) -> Option<String> {
        let (stage, since) = self.state().stage?;
        let all = Seen::here(comm);
        let look = Look::take(comm, &stage, &all, since, Instant::now(), (since, 0));
        Some(format!("{}: {}", title(&stage), look.text(&stage)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in it can be half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does.
    fn draw(&self, comm: &dyn Communicator) {
        let mut of: Option<Instant> = None;
        let mut before = (Instant::now(), 0);
        let mut line_at = FIRST_LINE;
        let mut state = self.state();
        loop {
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.over {
                return;
            }
            let Some((stage, since)) = state.stage else { continue };
            if of != Some(since) {
                (of, before, line_at) = (Some(since), (since, 0), FIRST_LINE);
            }
            let now = Instant::now();
            let mut seen = Seen::here(comm);
            let seconds = (now - since).as_secs_f64();
            state.samples.look(Sample { seconds, done: seen.done });
            let number = state.number;
            if let Some(hosts) = self.hosts.as_ref().filter(|_| !comm.is_root()) {
                hosts.tell(&seen.told(comm.rank(), number));
            }
            if self.form == Form::Quiet {
                continue;
            }
            for told in self.hosts.iter().flat_map(|hosts| hosts.told(comm, number, now)) {
                seen.add(&told);
            }
            let look = Look::take(comm, &stage, &seen, since, now, before);
            before = (now, look.done);
            match self.form {
                Form::Bar => self.bar(&mut state, &stage, &look),
                _ if now - since >= line_at => {
                    line_at = now - since + NEXT_LINE;
                    // A closed standard error is no reason to end a run.
                    let _ = writeln!(stderr(), "{}: {}", title(&stage), look.text(&stage));
                }
                _ => {}
            }
        }
    }

    fn bar(&self, state: &mut State, stage: &Stage, look: &Look) {
        let bar = state.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::stderr_with_hz(10);
            let form = if look.all == 0 { "{prefix} {msg}" } else { "{prefix} [{bar:24}] {msg}" };
            let style = ProgressStyle::with_template(form);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::with_draw_target(Some(look.all), target)
                .with_style(style.progress_chars("=> "))
                .with_prefix(title(stage))
        });
        bar.set_message(look.text(stage));
        bar.set_position(look.share_done());
    }
}

fn title(stage: &Stage) -> String {
    format!("{} {}/{}", stage.name, stage.repetition + 1, stage.of)
}

/// What is seen at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Look {
    done: u64,
    all: u64,
    ranks: usize,
    /// How many of them can be seen.
    ranks_seen: usize,
    /// How many are done, if all can be seen.
    ranks_done: Option<usize>,
    /// The counts of the slowest and of the fastest rank.
    slowest: u64,
    fastest: u64,
    elapsed_s: f64,
    /// Operations a second since the last look.
    rate_now: f64,
    deadline_s: u64,
    wear_out: bool,
}

impl Look {
    fn take(
        comm: &dyn Communicator,
        stage: &Stage,
        seen: &Seen,
        since: Instant,
        now: Instant,
        before: (Instant, u64),
    ) -> Self {
        let ranks = comm.size();
        let ranks_seen = usize::try_from(seen.ranks).unwrap_or(usize::MAX).min(ranks);
        let all_seen = seen.ranks == ranks as u64;
        // The others are taken to be as far.
        let done = match all_seen {
            true => seen.done,
            false => seen.done.saturating_mul(ranks as u64) / seen.ranks.max(1),
        };
        let passed = (now - before.0).as_secs_f64().max(1e-3);
        Self {
            done,
            all: stage.per_rank.saturating_mul(ranks as u64),
            ranks,
            ranks_seen,
            ranks_done: all_seen.then(|| usize::try_from(seen.over).unwrap_or(ranks)),
            slowest: seen.slowest.min(seen.fastest),
            fastest: seen.fastest,
            elapsed_s: (now - since).as_secs_f64(),
            rate_now: done.saturating_sub(before.1) as f64 / passed,
            deadline_s: stage.deadline_s,
            wear_out: stage.wear_out,
        }
    }

    fn rate_mean(&self) -> f64 {
        self.done as f64 / self.elapsed_s.max(1e-3)
    }

    /// Seconds that are left, at this rate or until the stonewall; after it, until the slowest
    /// rank is where the fastest one is, if all can be seen.
    fn left_s(&self) -> Option<f64> {
        let work = self.all.saturating_sub(self.done) as f64 / self.rate_mean().max(1e-9);
        if self.deadline_s == 0 {
            return Some(work);
        }
        let until = self.deadline_s as f64 - self.elapsed_s;
        if until > 0.0 {
            return Some(work.min(until));
        }
        if !self.wear_out || self.ranks_done? == self.ranks {
            return Some(0.0);
        }
        // A rank that has done nothing is taken to be about to end its first operation.
        let rate = self.slowest.max(1) as f64 / self.elapsed_s.max(1e-3);
        Some(self.fastest.saturating_sub(self.slowest) as f64 / rate)
    }

    /// How far it is, of `all`: of the work or of the time, whichever ends it.
    fn share_done(&self) -> u64 {
        let left_s = self.left_s().unwrap_or(0.0);
        let share = self.elapsed_s / (self.elapsed_s + left_s).max(1e-9);
        (self.all as f64 * share) as u64
    }

    fn text(&self, stage: &Stage) -> String {
        let rate = |rate: f64| match stage.bytes {
            0 => format!("{rate:.0} ops/s"),
            bytes => format!("{:.1} MiB/s", rate * bytes as f64 / MIB as f64),
        };
        if self.all == 0 {
            let passed = span(self.elapsed_s);
            // A program that does it all by itself does not count here.
            return match self.done {
                0 => format!("for {passed}"),
                done => format!(
                    "{done} in {passed}, now {}, mean {}",
                    rate(self.rate_now),
                    rate(self.rate_mean())
                ),
            };
        }
        let percent = self.share_done() as f64 / self.all.max(1) as f64 * 100.0;
        let (now, mean) = (rate(self.rate_now), rate(self.rate_mean()));
        let ranks = match self.ranks_done {
            Some(done) => format!(", {done} of {} ranks done", self.ranks),
            None => {
                format!(", by {} of {} ranks (others are not seen)", self.ranks_seen, self.ranks)
            }
        };
        let left =
            self.left_s().map_or("past the stonewall".into(), |left_s| span(left_s) + " left");
        format!("{percent:.0} %, now {now}, mean {mean}{ranks}, {left}")
    }
}

/// A span of time in words.
fn span(seconds: f64) -> String {
    let whole = seconds.round().clamp(0.0, 1e9) as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGE: Stage = Stage {
        name: "write",
        repetition: 1,
        of: 3,
        per_rank: 100,
        bytes: 1 << 20,
        deadline_s: 0,
        wear_out: false,
    };

    fn look(done: u64, elapsed_s: f64, deadline_s: u64) -> Look {
        let (slowest, fastest) = (done / 8, done / 2);
        Look {
            done,
            all: 400,
            ranks: 4,
            ranks_seen: 4,
            ranks_done: Some(1),
            slowest,
            fastest,
            elapsed_s,
            rate_now: 30.0,
            deadline_s,
            wear_out: false,
        }
    }

    #[test]
    fn what_is_shown_follows_from_the_counts() {
        assert_eq!(title(&STAGE), "write 2/3");
        let text = look(100, 5.0, 0).text(&STAGE);
        let wanted = "25 %, now 30.0 MiB/s, mean 20.0 MiB/s, 1 of 4 ranks done, 15 s left";
        assert_eq!(text, wanted);
        let files = Stage { bytes: 0, ..STAGE };
        assert!(look(100, 5.0, 0).text(&files).contains("now 30 ops/s, mean 20 ops/s"));
    }

    #[test]
    fn a_stonewall_comes_before_the_work_is_done() {
        let look = look(4, 5.0, 50);
        assert_eq!(look.left_s(), Some(45.0));
        assert_eq!(look.share_done(), 40);
    }

    #[test]
    fn after_a_stonewall_the_slowest_goes_on_to_where_the_fastest_is() {
        let past = Look { wear_out: true, ..look(80, 5.0, 4) };
        assert_eq!(past.left_s(), Some(15.0), "30 operations at 2 a second");
        assert_eq!(past.share_done(), 100);
        assert_eq!(Look { wear_out: false, ..past }.left_s(), Some(0.0));
        assert_eq!(Look { ranks_done: Some(4), ..past }.left_s(), Some(0.0));
        assert!(Look { slowest: 0, ..past }.left_s().unwrap() > 100.0);
    }

    #[test]
    fn of_ranks_that_cannot_be_seen_nothing_is_said_but_how_many_are() {
        let mpi = Look { ranks_seen: 3, ranks_done: None, ..look(100, 5.0, 0) };
        let seen = "by 3 of 4 ranks (others are not seen)";
        let wanted = format!("25 %, now 30.0 MiB/s, mean 20.0 MiB/s, {seen}, 15 s left");
        assert_eq!(mpi.text(&STAGE), wanted);
        let past = Look { deadline_s: 4, wear_out: true, ..mpi };
        let wanted = format!("100 %, now 30.0 MiB/s, mean 20.0 MiB/s, {seen}, past the stonewall");
        assert_eq!(past.text(&STAGE), wanted);
    }

    #[test]
    fn what_other_hosts_have_told_is_counted() {
        let solo = crate::comm::Solo::new().unwrap();
        solo.note_done(6);
        let mut seen = Seen::here(&solo);
        assert_eq!(seen, Seen { ranks: 1, done: 6, over: 0, slowest: 6, fastest: 6 });
        let told = seen.told(0, 9);
        assert_eq!((told.stage, told.ranks, told.slowest, told.fastest), (9, 1, 6, 6));
        seen.add(&Told { ranks: 2, done: 30, over: 1, slowest: 2, fastest: 28, ..told });
        assert_eq!(seen, Seen { ranks: 3, done: 36, over: 1, slowest: 2, fastest: 28 });
        let since = Instant::now();
        let look = |seen: &Seen| Look::take(&solo, &STAGE, seen, since, since, (since, 0));
        // More than there are is no number of them.
        assert_eq!((look(&seen).ranks_seen, look(&seen).ranks_done), (1, None));
        let none = Seen { ranks: 0, done: 0, over: 0, slowest: u64::MAX, fastest: 0 };
        assert_eq!((look(&none).slowest, look(&none).done), (0, 0));
        assert_eq!(none.told(0, 1).slowest, 0);
    }

    #[test]
    fn of_work_that_nobody_knows_what_is_done_is_shown() {
        let files = Stage { bytes: 0, per_rank: 0, ..STAGE };
        let some = Look { all: 0, ..look(100, 5.0, 0) };
        assert_eq!(some.text(&files), "100 in 5 s, now 30 ops/s, mean 20 ops/s");
        assert_eq!(Look { done: 0, ..some }.text(&files), "for 5 s");
    }

    #[test]
    fn nothing_done_yet_breaks_nothing() {
        assert!(look(0, 0.0, 0).text(&STAGE).contains("0 %"));
        assert!(look(0, 0.0, 0).text(&STAGE).contains(" h "));
    }

    #[test]
    fn spans_are_said_in_words() {
        assert_eq!(span(7.4), "7 s");
        assert_eq!(span(61.0), "1 min 1 s");
        assert_eq!(span(7260.0), "2 h 1 min");
    }
}
