//! What a kernel does with files that it was given: it reads and writes the object without asking, and
//! lets nobody have the file in another way meanwhile (decision 0007).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use sateen_client::{OpenHow, Patience, Port, Way};
use sateen_osd::{ObjectError, ObjectStore};
use sateen_types::{Errno, Fid, Result};

use super::{Handle, Kernel, Lock, PAGE_BYTES, cred};
use crate::executor::lock;
use crate::port::{Backing, SimPort};
use crate::random::Random;

/// Between what happens in a kernel and what its daemon hears of it: at most 300 µs.
const PAUSE_NS: u64 = 300_000;

/// Opens of one inode that programs have, as the kernel counts them.
#[derive(Debug, Default)]
struct Opens {
    ordinary: u32,
    /// Also those that are asked beside.
    given: u32,
    backing: Option<Backing>,
}

/// The files of a kernel that is given some.
pub(super) struct GivenFiles {
    port: Arc<SimPort>,
    random: Mutex<Random>,
    opens: Mutex<BTreeMap<Fid, Opens>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// The last that programs have closed for good.
    closed: Mutex<Option<Fid>>,
    /// What goes on of which no program knows.
    under_way: Arc<AtomicU32>,
}

fn errno(error: &ObjectError) -> Errno {
    error.errno()
}

impl GivenFiles {
    async fn pause(&self) {
        let pause_ns = lock(&self.random).below(PAUSE_NS);
        self.port.sleep(pause_ns).await;
    }

    /// Runs something that no program waits for.
    fn later(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let under_way = self.under_way.clone();
        self.port.spawn(Box::pin(async move {
            work.await;
            under_way.fetch_sub(1, Ordering::Relaxed);
        }));
    }

    fn count(&self, kind: &'static str) {
        *lock(&self.counts).entry(kind).or_default() += 1;
    }

    fn one_in(&self, count: u64) -> bool {
        lock(&self.random).one_in(count)
    }

    fn backing(&self, fid: Fid) -> Result<Backing> {
        let opens = lock(&self.opens);
        opens.get(&fid).and_then(|opens| opens.backing.clone()).ok_or(Errno::EIO)
    }
}

impl Kernel {
    /// This kernel is given files from now on.
    pub(crate) fn is_given_files(&mut self, port: Arc<SimPort>, random: Random) {
        let (opens, counts, closed) = (Mutex::default(), Mutex::default(), Mutex::default());
        let random = Mutex::new(random);
        let under_way = Arc::default();
        self.given = Some(GivenFiles { port, random, opens, counts, closed, under_way });
    }

    /// The file that programs have closed last of those that were given.
    pub(crate) fn last_given(&self) -> Option<Fid> {
        self.given.as_ref().and_then(|given| *lock(&given.closed))
    }

    /// What has come of it so far.
    pub(super) fn given_counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.given.as_ref().map(|given| lock(&given.counts).clone());
        counts.into_iter().flatten().collect()
    }

    /// An open has succeeded: how it is answered. A kernel refuses those that do not go together.
    pub(super) async fn answered(&self, (fid, id): (Fid, u64), begins: bool) -> Result<Way> {
        let Some(given) = &self.given else { return Ok(Way::Ordinary) };
        let way = match self.client.way_of(id, begins).await {
            Ok(way) => way,
            Err(errno) => {
                let _closed = self.client.close(id).await;
                return Err(errno);
            }
        };
        // The answer is on its way.
        given.pause().await;
        let is_let_in = {
            let mut all = lock(&given.opens);
            let opens = all.entry(fid).or_default();
            let others = if way == Way::Ordinary { opens.given } else { opens.ordinary };
            if others > 0 {
                false
            } else if way == Way::Ordinary {
                opens.ordinary += 1;
                true
            } else {
                opens.given += 1;
                let backing = given.port.backing(fid.ino());
                let is_same = opens.backing.is_none() || backing.is_some();
                opens.backing = opens.backing.take().or(backing);
                is_same && opens.backing.is_some()
            }
        };
        if !is_let_in {
            let _closed = self.client.close(id).await;
            return Err(Errno::EIO);
        }
        if way != Way::Ordinary {
            lock(&self.state).pages.changed(fid);
        }
        given.count(match way {
            Way::Ordinary => "open as ever",
            Way::Given => "open of a file that is given",
            Way::Beside => "open beside a file that is given",
        });
        Ok(way)
    }

    /// A program has closed it. Whether its daemon hears of that only when the program has gone on.
    pub(super) fn released(&self, handle: Handle) -> bool {
        let Some(given) = &self.given else { return false };
        let mut all = lock(&given.opens);
        if let Some(opens) = all.get_mut(&handle.fid) {
            if handle.way == Way::Ordinary {
                opens.ordinary -= 1;
            } else {
                opens.given -= 1;
            }
            if opens.given == 0 && opens.backing.take().is_some() {
                *lock(&given.closed) = Some(handle.fid);
            }
            if opens.given + opens.ordinary == 0 {
                all.remove(&handle.fid);
            }
        }
        drop(all);
        self.others_come_and_go(handle);
        given.one_in(2)
    }

    /// The daemon hears of it after a while.
    pub(super) fn closes_late(&self, handle: Handle) {
        let Some(given) = &self.given else { return };
        given.count("close that nobody waited for");
        let (client, pause_ns) = (self.client.clone(), lock(&given.random).below(PAUSE_NS));
        let pause = given.port.sleep(pause_ns);
        given.later(async move {
            pause.await;
            // Nor does anybody hear what comes of it.
            let _closed = client.close(handle.id).await;
        });
    }

    /// Perhaps others open it beside that and go again at once, or fail: their programs are killed on the
    /// way, and none ever has it.
    pub(super) fn others_come_and_go(&self, handle: Handle) {
        let Some(given) = self.given.as_ref().filter(|given| given.one_in(4)) else { return };
        let (client, port, fid) = (self.client.clone(), given.port.clone(), handle.fid);
        let how = OpenHow { read: true, write: handle.how.write, ..OpenHow::default() };
        let mut random = Random::new(lock(&given.random).any());
        given.count("opens that come and go");
        given.later(async move {
            for _ in 0..random.within(1, 3) {
                port.sleep(random.below(PAUSE_NS)).await;
                if random.one_in(2) {
                    let patience = Arc::new(Patience::default());
                    patience.end();
                    let cut = OpenHow { write: true, truncate: true, ..how };
                    // It has to wait for its turn, and nobody waits for it.
                    let failed = patience.run(client.open(fid, cut, cred())).await;
                    assert!(failed.is_err(), "nobody waits for {fid} to be cut");
                } else if let Ok(opened) = client.open(fid, how, cred()).await {
                    let _way = client.way_of(opened.handle, true).await;
                    port.sleep(random.below(PAUSE_NS)).await;
                    let _closed = client.close(opened.handle).await;
                }
            }
        });
    }

    /// Whether something goes on of which no program knows.
    pub(crate) fn is_closing(&self) -> bool {
        self.given.as_ref().is_some_and(|given| given.under_way.load(Ordering::Relaxed) > 0)
    }

    /// Pages are read for nobody (`posix_fadvise`): no given open looks at them, but they stay.
    async fn read_ahead(&self, handle: Handle, offset: u64) {
        let _read = self.page(handle, offset / PAGE_BYTES).await;
    }

    pub(super) async fn read_given(
        &self,
        handle: Handle,
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>> {
        let given = self.given.as_ref().ok_or(Errno::EIO)?;
        if given.one_in(4) {
            self.read_ahead(handle, offset).await;
        }
        given.pause().await;
        let Backing { store, object } = given.backing(handle.fid)?;
        store.set_time(given.port.now());
        let mut buffer = BytesMut::new();
        given.count("read that nobody hears of");
        store.read(object, offset, len as usize, &mut buffer).map_err(|e| errno(&e))?;
        lock(&self.state).drop_attr(handle.fid);
        Ok(buffer.to_vec())
    }

    pub(super) async fn write_given(
        &self,
        handle: Handle,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let given = self.given.as_ref().ok_or(Errno::EIO)?;
        if given.one_in(4) {
            self.read_ahead(handle, offset).await;
        }
        let _inode = self.locks.alone(Lock::Inode(handle.fid), "write").await;
        given.pause().await;
        let Backing { store, object } = given.backing(handle.fid)?;
        store.set_time(given.port.now());
        given.count("write that nobody hears of");
        if handle.how.append {
            self.others_come_and_go(handle);
        }
        let written = if handle.how.append {
            store.append(object, data).map(|(_, len)| len)
        } else {
            store.write(object, offset, data)
        };
        // After a write, but not after a store through a mapping, the kernel asks for attributes.
        let end = offset + data.len() as u64;
        let grows = handle.how.append || self.attr_size(handle.fid).is_none_or(|size| size < end);
        if grows || !given.one_in(2) {
            lock(&self.state).drop_attr(handle.fid);
        }
        written.map_err(|e| errno(&e))
    }

    fn attr_size(&self, fid: Fid) -> Option<u64> {
        lock(&self.state).attrs.get(&fid).map(|attr| attr.size)
    }
}
