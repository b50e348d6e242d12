//! Statahead: programs that list a directory and then look at what is in it, name after name in the
//! order of the listing, as `ls -l` and walks of trees do, find the next names looked up already.
//!
//! Life of a listing: noted when a directory is read from its beginning, with its first names; begun
//! when two of these that follow each other were looked up; then so many names ahead are asked for as
//! the window allows, which grows with each that is taken; ended when the directory is closed, when
//! the guess is wrong, or when nobody has looked anything up for a while. A name that is taken is
//! believed only as far as the locks go that its answer has brought: see
//! [`Client::lookup`](crate::Client::lookup). Nothing is changed by it, and nothing waits for it but
//! who looks that very name up.
//!
//! Here is only what is to be asked and what has come of it; who asks is [`crate::llite`].

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sateen_types::{DirCookie, Errno, Fid, Name, Result};

use crate::inode::Inode;
use crate::sync::{Waiters, Woken, lock};

/// Names asked for ahead in one directory, unless it is set otherwise.
const MAX_DEFAULT: usize = 32;
/// What it can be set to, at most.
pub const STATAHEAD_MAX: usize = 512;
/// Directories whose listing is noted at a time.
const LISTINGS_MAX: usize = 64;
/// First names of a listing that are noted, some 32 bytes each.
const FIRST_MAX: usize = 64;
/// Names asked for ahead when a listing begins.
const WIDTH_FIRST: usize = 4;
/// Names that may be left out and still be looked up: programs with several threads are not quite in
/// order.
const PASSED_MAX: usize = 8;
/// Names looked up in a row that were not asked for ahead, after which the guess was wrong.
const MISSES_IN_A_ROW: u32 = 8;
/// Less than so many taken for each that was not, once there were some: the guess was wrong.
const HITS_PER_MISS: u32 = 4;
/// Ticks after which a listing is forgotten in which nobody looks anything up: 10 s.
const IDLE_TICKS: u32 = 40;
/// Counters of calls that change names, each for all names that share a place.
const CHANGING_PLACES: usize = 256;

/// What statahead was good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StataheadStats {
    /// Listings that were begun.
    pub begun: u64,
    /// Those of them that were ended because the guess was wrong.
    pub wrong: u64,
    /// Sizes that were asked for ahead at OSTs.
    pub sizes: u64,
    /// Names that were looked up and had been asked for ahead.
    pub hits: u64,
    /// Names looked up in these directories that had not, or asked for in vain.
    pub misses: u64,
}

#[derive(Debug, Default)]
struct Counters {
    begun: AtomicU64,
    wrong: AtomicU64,
    sizes: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Counters {
    fn all(&self) -> [&AtomicU64; 5] {
        [&self.begun, &self.wrong, &self.sizes, &self.hits, &self.misses]
    }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// What a name has led to, by a request that was sent at `stamp`.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) inode: Arc<Inode>,
    pub(crate) stamp: u64,
    /// This client has changed the name since. The inode is let go with the name.
    pub(crate) void: bool,
    /// How many changes of names that share its place had begun when it was taken.
    pub(crate) changes: u32,
}

#[derive(Debug)]
enum What {
    /// On its way; whether somebody waits for it.
    Asked(bool),
    /// The same, but this client has changed the name since: the answer is of no use.
    Void(bool),
    /// `None` if it is of no use.
    Answered(Option<Found>),
}

#[derive(Debug)]
struct Ahead {
    name: Name,
    what: What,
}

/// A listing whose names are asked for ahead.
#[derive(Debug)]
struct Run {
    /// Asked for and not taken, in the order of the listing.
    window: VecDeque<Ahead>,
    /// How many there may be.
    width: usize,
    /// The first of them that were left out.
    passed: usize,
    hits: u32,
    misses: u32,
    in_a_row: u32,
    /// Names that begin with a dot are not looked up.
    skips_hidden: bool,
    /// Whoever takes a name asks for its extended attributes, too.
    xattrs: bool,
    /// The last inode that was taken.
    taken: Option<Fid>,
    /// The last name that was looked up and not asked for.
    missed: Option<Name>,
    /// There were not slots for all that was to be asked for: what is not there was no wrong guess.
    starved: bool,
}

/// A directory that is being listed.
#[derive(Debug)]
struct Listing {
    dir: Arc<Inode>,
    /// Which of all listings.
    number: u64,
    /// In which tick something was looked up in it.
    used_at: u32,
    /// How often it was read from its beginning, less how often it was closed: of several programs that
    /// list it the first to close it does not end it for the others.
    readers: u32,
    /// Names that are not asked for yet.
    names: VecDeque<Name>,
    /// Those that follow come after this.
    after: DirCookie,
    end: bool,
    reading: bool,
    /// Before it is begun: which of the names was looked up last.
    last: Option<usize>,
    run: Option<Run>,
}

/// What whoever looks a name up finds.
#[derive(Debug)]
pub(crate) enum Looked {
    /// Nobody lists that directory.
    Elsewhere,
    /// Nothing: he asks for himself.
    Nothing,
    /// It is on its way.
    Waits,
    /// It is there.
    Found(Arc<Inode>, Found),
}

/// What is over: inodes to be let go, and those who waited for what is not asked any more.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) inodes: Vec<Arc<Inode>>,
    pub(crate) woken: Woken,
}

/// What is to be asked next in a directory.
#[derive(Debug, Default)]
pub(crate) struct Next {
    pub(crate) dir: Option<(Arc<Inode>, u64)>,
    pub(crate) names: Vec<Name>,
    /// The names after this.
    pub(crate) read: Option<DirCookie>,
    pub(crate) xattrs: bool,
}

fn is_hidden(name: &Name) -> bool {
    name.as_bytes().first() == Some(&b'.')
}

impl Run {
    fn new(skips_hidden: bool) -> Run {
        Run {
            window: VecDeque::new(),
            width: WIDTH_FIRST,
            passed: 0,
            hits: 0,
            misses: 0,
            in_a_row: 0,
            skips_hidden,
            xattrs: false,
            taken: None,
            missed: None,
            starved: false,
        }
    }

    /// One was looked up that is of no use, or not at all.
    fn misses(&mut self, many: usize) {
        self.misses = self.misses.saturating_add(many as u32);
    }

    fn is_wrong(&self) -> bool {
        let seldom = self.misses > MISSES_IN_A_ROW && self.hits < HITS_PER_MISS * self.misses;
        self.in_a_row > MISSES_IN_A_ROW || seldom
    }

    /// Takes one out, and those before it that nobody will look up any more.
    fn take(&mut self, at: usize) -> (Option<Ahead>, Vec<Ahead>) {
        let taken = self.window.remove(at);
        if at < self.passed {
            self.passed -= 1;
            return (taken, Vec::new());
        }
        let hidden = at > self.passed
            && self.window.range(self.passed..at).all(|ahead| is_hidden(&ahead.name));
        if hidden {
            // As `ls` leaves them out.
            self.skips_hidden = true;
            let passed = self.passed;
            return (taken, self.window.drain(passed..at).collect());
        }
        self.passed = at;
        let over = self.passed.saturating_sub(PASSED_MAX);
        self.passed -= over;
        self.misses(over);
        (taken, self.window.drain(..over).collect())
    }
}

impl Listing {
    /// A name is looked up before the listing has begun; whether that begins it.
    fn begins(&mut self, name: &[u8]) -> bool {
        let Some(at) = self.names.iter().position(|known| known.as_bytes() == name) else {
            return false;
        };
        let Some(last) = self.last.replace(at).filter(|last| *last < at) else { return false };
        if !self.names.range(last + 1..at).all(is_hidden) {
            return false;
        }
        let skips =
            self.names.range(..at).enumerate().any(|(n, name)| n != last && is_hidden(name));
        self.names.drain(..=at);
        self.run = Some(Run::new(skips));
        true
    }

    fn is_over(&self) -> bool {
        let nothing_left = self.end && self.names.is_empty();
        match &self.run {
            Some(run) => nothing_left && run.window.is_empty() || run.is_wrong(),
            None => nothing_left,
        }
    }
}

/// All listings.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    all: BTreeMap<Fid, Listing>,
    numbers: u64,
    pub(crate) waiters: Waiters,
}

/// Statahead of a client.
#[derive(Debug)]
pub(crate) struct Statahead {
    max: AtomicUsize,
    agl: AtomicBool,
    /// How many listings there are.
    listings: AtomicUsize,
    /// Requests on their way.
    pub(crate) asked: AtomicUsize,
    /// Calls of this client under way that change a name, or extended attributes, and how many have
    /// begun.
    changing: [AtomicU32; CHANGING_PLACES],
    begun: [AtomicU32; CHANGING_PLACES],
    counters: Counters,
    pub(crate) state: Mutex<Listings>,
}

impl Default for Statahead {
    fn default() -> Statahead {
        Statahead {
            max: AtomicUsize::new(MAX_DEFAULT),
            agl: AtomicBool::new(true),
            listings: AtomicUsize::default(),
            asked: AtomicUsize::default(),
            changing: [const { AtomicU32::new(0) }; CHANGING_PLACES],
            begun: [const { AtomicU32::new(0) }; CHANGING_PLACES],
            counters: Counters::default(),
            state: Mutex::default(),
        }
    }
}

/// A call of this client that changes a name of a directory, or the extended attributes of an inode.
/// Its own locks do not keep what was asked ahead true: what was found under this name is void with
/// its beginning, and until its end the name is not asked for ahead.
pub(crate) struct Changing<'a>(&'a AtomicU32);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The counter of a name of a directory, or of the extended attributes of an inode.
fn place<'a>(all: &'a [AtomicU32; CHANGING_PLACES], fid: Fid, name: &[u8]) -> &'a AtomicU32 {
    let mut hasher = DefaultHasher::new();
    (fid, name).hash(&mut hasher);
    let place = hasher.finish() as usize % CHANGING_PLACES;
    all.get(place).unwrap_or(&all[0])
}

impl Statahead {
    /// A call begins that changes a name of this directory.
    pub(crate) fn changes_name(&self, dir: Fid, name: &Name) -> Changing<'_> {
        let changing = self.changes(dir, name.as_bytes());
        // Whoever begins a listing after this asks for no name without having seen the change.
        if !self.is_idle() {
            lock(&self.state).voids(dir, name);
        }
        // Whoever has taken the name before it was void finds that it has changed since.
        place(&self.begun, dir, name.as_bytes()).fetch_add(1, Ordering::SeqCst);
        changing
    }

    /// A call begins that changes the extended attributes of this inode.
    pub(crate) fn changes_xattrs(&self, fid: Fid) -> Changing<'_> {
        self.changes(fid, b"")
    }

    fn changes(&self, fid: Fid, name: &[u8]) -> Changing<'_> {
        let place = place(&self.changing, fid, name);
        place.fetch_add(1, Ordering::SeqCst);
        Changing(place)
    }

    /// Whether there may be a call that changes this name.
    pub(crate) fn is_changing_name(&self, dir: Fid, name: &[u8]) -> bool {
        place(&self.changing, dir, name).load(Ordering::SeqCst) > 0
    }

    /// How many calls have begun that change this name, or one that shares its place.
    pub(crate) fn changes_begun(&self, dir: Fid, name: &[u8]) -> u32 {
        place(&self.begun, dir, name).load(Ordering::SeqCst)
    }

    /// Whether there may be a call that changes the extended attributes of this inode.
    pub(crate) fn is_changing_xattrs(&self, fid: Fid) -> bool {
        place(&self.changing, fid, b"").load(Ordering::SeqCst) > 0
    }

    /// Whether nothing is being listed.
    pub(crate) fn is_idle(&self) -> bool {
        self.listings.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max(&self, max: usize) -> Result<()> {
        if max > STATAHEAD_MAX {
            return Err(Errno::ERANGE);
        }
        self.max.store(max, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn agl(&self) -> bool {
        self.agl.load(Ordering::Relaxed)
    }

    pub(crate) fn set_agl(&self, agl: bool) {
        self.agl.store(agl, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> StataheadStats {
        let [begun, wrong, sizes, hits, misses] =
            self.counters.all().map(|counter| counter.load(Ordering::Relaxed));
        StataheadStats { begun, wrong, sizes, hits, misses }
    }

    pub(crate) fn clear_stats(&self) {
        self.counters.all().into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// A size is asked for ahead.
    pub(crate) fn asks_size(&self) {
        count(&self.counters.sizes, 1);
    }

    /// A directory was read from its beginning. What was found for the listing before it, which
    /// whoever calls lets go.
    pub(crate) fn listed<'a>(
        &self,
        dir: &Arc<Inode>,
        now: u32,
        entries: impl Iterator<Item = (DirCookie, &'a Name)>,
        end: bool,
    ) -> Left {
        let mut state = lock(&self.state);
        if self.max() == 0 {
            return Left::default();
        }
        let mut readers = 1;
        if let Some(listing) = state.all.get_mut(&dir.fid) {
            listing.readers = listing.readers.saturating_add(1);
            readers = listing.readers;
            // One that goes well is gone on with.
            if listing.run.is_some() {
                return Left::default();
            }
        }
        let (mut names, mut after, mut end) = (VecDeque::new(), DirCookie::START, end);
        for (cookie, name) in entries {
            if names.len() == FIRST_MAX {
                end = false;
                break;
            }
            after = cookie;
            names.push_back(name.clone());
        }
        let mut left = Left::default();
        if state.all.len() >= LISTINGS_MAX && !state.all.contains_key(&dir.fid) {
            let oldest = state.all.values().max_by_key(|old| now.wrapping_sub(old.used_at));
            let oldest = oldest.map(|listing| listing.dir.fid);
            left.inodes.extend(oldest.map(|fid| state.remove(fid)).unwrap_or_default());
            left.woken = state.waiters.take();
        }
        // Of two there is nothing to be asked ahead.
        if names.len() > 2 {
            state.numbers += 1;
            let (number, dir) = (state.numbers, dir.clone());
            let listing = Listing {
                number,
                used_at: now,
                readers,
                names,
                after,
                end,
                reading: false,
                last: None,
                run: None,
                dir,
            };
            state.all.insert(listing.dir.fid, listing);
        }
        self.counted(&state);
        left
    }

    fn counted(&self, state: &Listings) {
        self.listings.store(state.all.len(), Ordering::SeqCst);
    }

    /// A program has closed a directory. Whether nobody is left who has read it.
    pub(crate) fn closes(&self, dir: Fid) -> bool {
        let mut state = lock(&self.state);
        let Some(listing) = state.all.get_mut(&dir) else { return false };
        listing.readers = listing.readers.saturating_sub(1);
        listing.readers == 0
    }

    /// A listing is over. What was found for it and not taken.
    pub(crate) fn end(&self, dir: Fid) -> (Vec<Arc<Inode>>, Woken) {
        let mut state = lock(&self.state);
        let left = state.remove(dir);
        self.counted(&state);
        (left, state.waiters.take())
    }

    /// Listings in which nobody has looked anything up for long, and all if none is to be.
    pub(crate) fn old(&self, now: u32) -> Vec<Fid> {
        if self.is_idle() {
            return Vec::new();
        }
        let off = self.max() == 0;
        let state = lock(&self.state);
        let old = state
            .all
            .iter()
            .filter(|(_, listing)| off || now.wrapping_sub(listing.used_at) > IDLE_TICKS);
        old.map(|(fid, _)| *fid).collect()
    }

    /// A name is looked up. What is over with it is left to be let go.
    pub(crate) fn look(
        &self,
        state: &mut Listings,
        (dir, name): (Fid, &[u8]),
        now: u32,
        left: &mut Left,
    ) -> Looked {
        let Some(listing) = state.all.get_mut(&dir) else { return Looked::Elsewhere };
        listing.used_at = now;
        let Some(run) = &mut listing.run else {
            count(&self.counters.begun, u64::from(listing.begins(name)));
            self.look_over(state, dir, left);
            return Looked::Nothing;
        };
        let at = run.window.iter().position(|ahead| ahead.name.as_bytes() == name);
        let mut looked = Looked::Nothing;
        match at.and_then(|at| run.window.get_mut(at).map(|ahead| (at, ahead))) {
            Some((_, Ahead { what: What::Asked(awaited) | What::Void(awaited), .. })) => {
                *awaited = true;
                return Looked::Waits;
            }
            Some((at, _)) => {
                let (taken, over) = run.take(at);
                if !over.is_empty() {
                    left.woken = state.waiters.take();
                }
                left.inodes.extend(over.into_iter().filter_map(found));
                match taken.and_then(|ahead| ahead.into_found()) {
                    Some(mut found) => {
                        found.changes = self.changes_begun(dir, name);
                        run.taken = Some(found.inode.fid);
                        looked = Looked::Found(listing.dir.clone(), found);
                    }
                    None => self.missed(run),
                }
            }
            None => {
                // Perhaps it is one that is to be asked for next.
                match listing.names.iter().position(|known| known.as_bytes() == name) {
                    Some(at) => {
                        listing.names.drain(..=at);
                        if run.starved && at <= PASSED_MAX {
                            count(&self.counters.misses, 1);
                        } else {
                            self.missed(run);
                        }
                    }
                    None => {
                        run.missed = Name::new(name).ok();
                        self.missed(run);
                    }
                }
            }
        }
        self.look_over(state, dir, left);
        looked
    }

    fn missed(&self, run: &mut Run) {
        run.misses(1);
        run.in_a_row += 1;
        count(&self.counters.misses, 1);
    }

    /// Ends a listing if it is over.
    fn look_over(&self, state: &mut Listings, dir: Fid, left: &mut Left) {
        let Some(listing) = state.all.get(&dir).filter(|listing| listing.is_over()) else { return };
        let wrong = listing.run.as_ref().is_some_and(Run::is_wrong);
        count(&self.counters.wrong, u64::from(wrong));
        left.inodes.extend(state.remove(dir));
        let woken = core::mem::take(&mut left.woken);
        left.woken = woken.and(state.waiters.take());
        self.counted(state);
    }

    /// What was taken was good, or not.
    pub(crate) fn taken(&self, dir: Fid, good: bool) {
        let mut state = lock(&self.state);
        let Some(run) = state.all.get_mut(&dir).and_then(|listing| listing.run.as_mut()) else {
            return count(if good { &self.counters.hits } else { &self.counters.misses }, 1);
        };
        if !good {
            return self.missed(run);
        }
        count(&self.counters.hits, 1);
        run.hits = run.hits.saturating_add(1);
        run.in_a_row = 0;
        run.width = (run.width * 2).min(self.max());
    }

    /// Whoever has taken this inode asks for its extended attributes.
    pub(crate) fn wants_xattrs(&self, fid: Fid) {
        if self.is_idle() {
            return;
        }
        let mut state = lock(&self.state);
        let mut runs = state.all.values_mut().filter_map(|listing| listing.run.as_mut());
        if let Some(run) = runs.find(|run| run.taken == Some(fid)) {
            run.xattrs = true;
        }
    }

    /// What is to be asked next in a directory, if there are so many slots for it.
    pub(crate) fn next(&self, dir: Fid, slots: usize) -> Next {
        let mut next = Next::default();
        let mut state = lock(&self.state);
        let Some(listing) = state.all.get_mut(&dir) else { return next };
        let Some(run) = &mut listing.run else { return next };
        let room = run.width.min(self.max()).saturating_sub(run.window.len());
        run.starved = slots < room;
        while next.names.len() < room.min(slots) {
            let Some(name) = listing.names.pop_front() else { break };
            if run.skips_hidden && is_hidden(&name) {
                continue;
            }
            // Its answer may be from before the change.
            if self.is_changing_name(dir, name.as_bytes()) {
                continue;
            }
            run.window.push_back(Ahead { name: name.clone(), what: What::Asked(false) });
            next.names.push(name);
        }
        if listing.names.len() < run.width && !listing.end && !listing.reading {
            listing.reading = true;
            next.read = Some(listing.after);
        }
        self.asked.fetch_add(next.names.len(), Ordering::Relaxed);
        next.xattrs = run.xattrs;
        next.dir = Some((listing.dir.clone(), listing.number));
        next
    }

    /// More names of a directory have come; without any it is over.
    pub(crate) fn read(
        &self,
        (dir, number): (Fid, u64),
        entries: impl Iterator<Item = (DirCookie, Name)>,
        end: bool,
    ) {
        let mut state = lock(&self.state);
        let listing = state.all.get_mut(&dir).filter(|listing| listing.number == number);
        let Some(listing) = listing else { return };
        listing.reading = false;
        let before = listing.after;
        for (cookie, name) in entries {
            listing.after = cookie;
            listing.names.push_back(name);
        }
        listing.end = end || listing.after == before;
        let missed = listing.run.as_mut().and_then(|run| run.missed.take());
        let at = missed.and_then(|missed| listing.names.iter().position(|name| *name == missed));
        // He is further than this was.
        if let Some(at) = at {
            listing.names.drain(..=at);
        }
    }

    /// Whether a program waits for what a name that was asked for leads to.
    pub(crate) fn is_awaited(&self, (dir, number): (Fid, u64), name: &Name) -> bool {
        let state = lock(&self.state);
        let listing = state.all.get(&dir).filter(|listing| listing.number == number);
        let run = listing.and_then(|listing| listing.run.as_ref());
        let mut window = run.into_iter().flat_map(|run| run.window.iter());
        let awaited = |what: &What| matches!(what, What::Asked(true) | What::Void(true));
        window.any(|ahead| ahead.name == *name && awaited(&ahead.what))
    }

    /// An answer has come. It is handed back if nobody wants it any more.
    pub(crate) fn answered(
        &self,
        (dir, number): (Fid, u64),
        name: &Name,
        found: Option<Found>,
    ) -> Option<Found> {
        let mut state = lock(&self.state);
        self.asked.fetch_sub(1, Ordering::Relaxed);
        let listing = state.all.get_mut(&dir).filter(|listing| listing.number == number);
        let run = listing.and_then(|listing| listing.run.as_mut());
        let mut window = run.into_iter().flat_map(|run| run.window.iter_mut());
        // A name that was made again meanwhile may be there twice.
        let unanswered = |ahead: &&mut Ahead| !matches!(ahead.what, What::Answered(_));
        let ahead = window.find(|ahead| ahead.name == *name && unanswered(ahead));
        let Some(ahead) = ahead else { return found };
        let waits = matches!(ahead.what, What::Asked(true) | What::Void(true));
        let (kept, left) = match ahead.what {
            What::Void(_) => (None, found),
            _ => (found, None),
        };
        ahead.what = What::Answered(kept);
        let woken = if waits { state.waiters.take() } else { Woken::default() };
        drop(state);
        woken.wake();
        left
    }
}

impl Ahead {
    fn into_found(self) -> Option<Found> {
        match self.what {
            What::Answered(found) => found,
            What::Asked(_) | What::Void(_) => None,
        }
    }
}

fn found(ahead: Ahead) -> Option<Arc<Inode>> {
    ahead.into_found().map(|found| found.inode)
}

impl Listings {
    /// This client changes a name.
    fn voids(&mut self, dir: Fid, name: &Name) {
        let run = self.all.get_mut(&dir).and_then(|listing| listing.run.as_mut());
        let window = run.into_iter().flat_map(|run| run.window.iter_mut());
        for ahead in window.filter(|ahead| ahead.name == *name) {
            match &mut ahead.what {
                What::Asked(awaited) => ahead.what = What::Void(*awaited),
                What::Void(_) => {}
                What::Answered(found) => found.iter_mut().for_each(|found| found.void = true),
            }
        }
    }

    /// Inodes that were found and not taken, and the directory itself.
    fn remove(&mut self, dir: Fid) -> Vec<Arc<Inode>> {
        let Some(listing) = self.all.remove(&dir) else { return Vec::new() };
        let window = listing.run.into_iter().flat_map(|run| run.window);
        window.filter_map(found).chain([listing.dir]).collect()
    }
}
