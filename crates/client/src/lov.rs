//! Striping: one range of a file over its objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sateen_types::{
    Attr, Chunk, Copied, Endpoint, Errno, Fid, Layout, ObjectId, Result, Timespec, copied,
};
use sateen_wire::{BULK_MAX, Ibits, MdtRequest, SizeReport};

use crate::client::Client;
use crate::inode::{Inode, InodeState, Unsynced};
use crate::loss::{Asker, Loss};
use crate::osc::{Passage, Places};
use crate::patience::to_the_end;
use crate::sync::{join_all, lock, until};

/// How often a doubtful size is asked for without a pause.
const ASKED_AT_ONCE: u32 = 8;
/// A sync of whatever the OST has, also if it has restarted.
const ANY_EPOCH: u64 = 0;
/// The pause from then on: 1 ms.
const ASK_AGAIN_NS: u64 = 1_000_000;
/// How often at most: for 10 s and more.
const ASKED_MAX: u32 = 10_000;

/// The right to sync an inode; given back on drop.
struct SyncTurn<'a>(&'a Inode);

impl Drop for SyncTurn<'_> {
    fn drop(&mut self) {
        self.0.update(|state| state.syncing = false);
    }
}

/// What has come of a write, piece by piece.
#[derive(Debug, Default)]
struct Written {
    done: usize,
    failed: Option<Errno>,
    end: Option<u64>,
}

impl Written {
    /// The next piece was written so far, or not.
    fn add(&mut self, chunk: &Chunk, result: Result<u64>) {
        let mut written = chunk.len;
        match result {
            // Nothing was written, but the object may have been born.
            Ok(0) | Err(Errno::EDQUOT | Errno::EFBIG) => {
                self.fail(result.err().unwrap_or(Errno::ENOSPC));
                self.end = self.end.or(Some(0));
                return;
            }
            Ok(len) => {
                written = len;
                if self.failed.is_none() {
                    self.done += len as usize;
                }
                // The next write there hears what there was no room for.
                if len < chunk.len {
                    self.fail(Errno::ENOSPC);
                }
            }
            // Refused, or not sent.
            Err(errno @ (Errno::ENOSPC | Errno::EINVAL | Errno::ESTALE | Errno::EINTR)) => {
                return self.fail(errno);
            }
            Err(errno) => self.fail(errno),
        }
        self.end = Some(chunk.file_offset + written);
    }

    fn fail(&mut self, errno: Errno) {
        self.failed = self.failed.or(Some(errno));
    }
}

/// What the objects of a file say of it.
#[derive(Debug, Clone, Copy, Default)]
struct Proven {
    size: u64,
    blocks: u64,
    /// When one of them was written last.
    mtime: Timespec,
}

fn object_of(fid: Fid, stripe: u32) -> ObjectId {
    ObjectId { fid, stripe }
}

/// Puts what was read behind what was read before: copied only if it does not lie there already.
fn put_behind(buffer: &mut BytesMut, tail: BytesMut) {
    if !buffer.is_empty() && !core::ptr::eq(buffer.as_ptr_range().end, tail.as_ptr()) {
        copied(Copied::ClientStripes, tail.len());
    }
    buffer.unsplit(tail);
}

/// A piece of an object in pieces of at most so many bytes.
fn cut(chunk: Chunk, bytes_max: u64) -> impl Iterator<Item = Chunk> {
    (0..chunk.len.div_ceil(bytes_max)).map(move |number| {
        let at = number * bytes_max;
        Chunk {
            file_offset: chunk.file_offset + at,
            object_offset: chunk.object_offset + at,
            len: bytes_max.min(chunk.len - at),
            ..chunk
        }
    })
}

impl Client {
    /// Writes `data` at `offset`; how much of it is written. An error after some pieces is
    /// kept for later: the next write there meets it again. The number beside it is the end
    /// of what may be in the objects now, also of pieces that failed; 0 if there may be objects,
    /// but nothing in them; `None` if nothing has happened.
    ///
    /// Pieces go side by side if the OSTs have promised room for all of them, and one after
    /// the other otherwise.
    pub(crate) async fn write_stripes(
        &self,
        inode: &Inode,
        layout: &Arc<Layout>,
        offset: u64,
        data: Bytes,
        by: Passage,
    ) -> (Result<usize>, Option<u64>) {
        let (first, all) = {
            let mut chunks = self.pieces(layout, offset, data.len() as u64);
            let Some(first) = chunks.next() else { return (Err(Errno::EFBIG), None) };
            let second = chunks.next();
            (first, second.map(|second| [first, second].into_iter().chain(chunks).collect()))
        };
        let mut sum = Written::default();
        match all {
            // As nearly all are: without lists, and with one future less in memory of its own.
            None => {
                let grant = self.take_grant(first.ost, first.len);
                let write = self.write_chunk(inode, layout.generation, first, (data, grant), by);
                sum.add(&first, write.await);
            }
            Some(all) => {
                let writes = self.write_pieces(inode, layout.generation, (all, data), by, &mut sum);
                Box::pin(writes).await;
            }
        }
        match sum.failed {
            Some(errno) if sum.done == 0 => (Err(errno), sum.end),
            _ => (Ok(sum.done), sum.end),
        }
    }

    /// Writes several pieces, which follow each other in `data`.
    async fn write_pieces(
        &self,
        inode: &Inode,
        layout_gen: u32,
        (chunks, data): (Vec<Chunk>, Bytes),
        by: Passage,
        sum: &mut Written,
    ) {
        let offset = chunks.first().map_or(0, |first| first.file_offset);
        let write = |chunk: &Chunk, grant: u64| {
            let from = (chunk.file_offset - offset) as usize;
            let bytes = data.slice(from..from + chunk.len as usize);
            let write: std::pin::Pin<Box<dyn Future<Output = Result<u64>> + Send + '_>> =
                Box::pin(self.write_chunk(inode, layout_gen, *chunk, (bytes, grant), by));
            write
        };
        if self.take_grants(&chunks) {
            let writes = chunks.iter().map(|chunk| write(chunk, chunk.len)).collect();
            let results = join_all(writes).await;
            chunks.iter().zip(results).for_each(|(chunk, result)| sum.add(chunk, result));
            return;
        }
        // One that is refused must be the last: behind the end of a short write the file must not
        // have grown.
        for chunk in &chunks {
            let grant = self.take_grant(chunk.ost, chunk.len);
            let result = write(chunk, grant).await;
            sum.add(chunk, result);
            if result != Ok(chunk.len) {
                break;
            }
        }
    }

    /// A range of a file, cut into what one request each can carry; stripes that follow each other
    /// in their object, too, go together.
    pub(crate) fn long_pieces(&self, layout: &Layout, (offset, len): (u64, u64)) -> Vec<Chunk> {
        let mut long: Vec<Chunk> = Vec::new();
        for chunk in layout.chunks(offset, len) {
            match long.last_mut() {
                Some(last)
                    if last.stripe == chunk.stripe
                        && last.object_offset + last.len == chunk.object_offset =>
                {
                    last.len += chunk.len;
                }
                _ => long.push(chunk),
            }
        }
        long.into_iter().flat_map(|chunk| cut(chunk, self.rpc_bytes_max(chunk.ost))).collect()
    }

    /// Bytes that one request to an OST carries at most.
    pub(crate) fn rpc_bytes_max(&self, ost: u32) -> u64 {
        // To one that is not known yet the request will have to wait, whatever its size.
        let import = self.import(Endpoint::Ost(ost));
        import.map_or(BULK_MAX as u64, |import| import.rpc_bytes_max())
    }

    /// Whether one request to one OST can carry all of a range of a file.
    pub(crate) fn is_one_piece(&self, layout: &Layout, (offset, len): (u64, u64)) -> bool {
        let mut pieces = self.pieces(layout, offset, len);
        pieces.next().is_some_and(|piece| piece.len == len)
    }

    /// A range of a file, cut into what one request each can carry.
    fn pieces(&self, layout: &Layout, offset: u64, len: u64) -> impl Iterator<Item = Chunk> {
        layout.chunks(offset, len).flat_map(|chunk| cut(chunk, self.rpc_bytes_max(chunk.ost)))
    }

    /// Writes one piece, using up a grant taken before; how much of it there was room for.
    ///
    /// # Errors
    /// The OST's, or `EIO` if the connection was lost.
    pub(crate) fn write_chunk<'a>(
        &'a self,
        inode: &'a Inode,
        layout_gen: u32,
        chunk: Chunk,
        data: (Bytes, u64),
        by: Passage,
    ) -> impl Future<Output = Result<u64>> + Send + 'a {
        let places = Places::At(chunk.object_offset);
        self.write_object(inode, layout_gen, (chunk.ost, chunk.stripe), (places, data), by)
    }

    /// Writes data to one object, using up a grant taken before; how much of it there was room for, from
    /// its beginning.
    ///
    /// # Errors
    /// As [`Client::write_chunk`].
    pub(crate) async fn write_object(
        &self,
        inode: &Inode,
        layout_gen: u32,
        (ost, stripe): (u32, u32),
        (places, data): (Places, (Bytes, u64)),
        by: Passage,
    ) -> Result<u64> {
        self.room_for(ost).await?;
        let object = (object_of(inode.fid, stripe), layout_gen);
        let admitted = self.admit(inode, ost);
        let (len, boot_epoch) = self.ost_write(ost, object, places, data, by).await?;
        if admitted.is_none() {
            self.unstable.miss(inode.fid);
        }
        self.changed_object(inode, stripe, Unsynced { ost, boot_epoch });
        Ok(len)
    }

    /// A run of an OST has changed an object.
    pub(crate) fn changed_object(&self, inode: &Inode, stripe: u32, at: Unsynced) {
        let mut state = lock(&inode.state);
        state.follow_runs(inode.fid, &self.unstable);
        let boot_epoch = self.unstable.now(inode.fid, (at.ost, at.boot_epoch));
        state.changed_object(stripe, Unsynced { boot_epoch, ..at }, &self.ended);
    }

    /// Reads up to `len` bytes at `offset` behind what `buffer` holds. The range lies within
    /// the file's size, so what objects do not have is a hole. If it is `direct`, past the page cache
    /// where that can be.
    ///
    /// # Errors
    /// The first one met.
    pub(crate) async fn read_stripes(
        &self,
        fid: Fid,
        layout: &Layout,
        (offset, len): (u64, u64),
        (mut buffer, direct): (BytesMut, bool),
    ) -> Result<BytesMut> {
        let start = buffer.len();
        for chunk in self.pieces(layout, offset, len) {
            let object = object_of(fid, chunk.stripe);
            let before = buffer.len();
            let want = chunk.len as u32;
            // Each piece has a buffer of its own, the rest of the same memory: a request that
            // is sent again comes back with nothing but its own bytes.
            let tail = buffer.split_off(before);
            let read = self.ost_read(chunk.ost, object, chunk.object_offset, want, (tail, direct));
            let (tail, _) = read.await?;
            if tail.len() as u64 > chunk.len {
                return Err(Errno::EPROTO);
            }
            put_behind(&mut buffer, tail);
            buffer.resize(before + chunk.len as usize, 0);
        }
        buffer.resize(start + len as usize, 0);
        Ok(buffer)
    }

    /// Reads a range that is [one piece](Client::is_one_piece) behind what `buffer` holds, if its object
    /// has all of it; whether it has. What it has not may be a hole, or lie behind the end of the file.
    ///
    /// # Errors
    /// The OST's.
    pub(crate) async fn read_piece(
        &self,
        fid: Fid,
        layout: &Layout,
        (offset, len): (u64, u64),
        (mut buffer, direct): (BytesMut, bool),
    ) -> Result<(BytesMut, bool)> {
        let before = buffer.len();
        let Some(chunk) = self.pieces(layout, offset, len).next() else {
            return Ok((buffer, false));
        };
        let object = object_of(fid, chunk.stripe);
        let tail = buffer.split_off(before);
        let (at, want) = (chunk.object_offset, chunk.len as u32);
        let read = self.ost_read(chunk.ost, object, at, want, (tail, direct));
        let (tail, _) = read.await?;
        if tail.len() as u64 > len {
            return Err(Errno::EPROTO);
        }
        let is_whole = tail.len() as u64 == len;
        put_behind(&mut buffer, tail);
        if !is_whole {
            buffer.truncate(before);
        }
        Ok((buffer, is_whole))
    }

    /// The same of a range in however many pieces.
    ///
    /// # Errors
    /// The OSTs'.
    pub(crate) async fn read_pieces(
        &self,
        fid: Fid,
        layout: &Layout,
        (offset, len): (u64, u64),
        (mut buffer, direct): (BytesMut, bool),
    ) -> Result<(BytesMut, bool)> {
        let (before, mut at) = (buffer.len(), offset);
        for chunk in self.pieces(layout, offset, len) {
            let is_whole;
            let into = (buffer, direct);
            (buffer, is_whole) = self.read_piece(fid, layout, (at, chunk.len), into).await?;
            if !is_whole {
                buffer.truncate(before);
                return Ok((buffer, false));
            }
            at += chunk.len;
        }
        Ok((buffer, true))
    }

    /// Where the next data, or with `hole` the next hole, of a file of `size` bytes begins at
    /// or after `offset`, which is below that; `None` if no data follows.
    ///
    /// # Errors
    /// The first one met.
    pub(crate) async fn seek_stripes(
        &self,
        fid: Fid,
        layout: &Layout,
        (offset, size): (u64, u64),
        hole: bool,
    ) -> Result<Option<u64>> {
        let places = layout.objects().filter_map(|(stripe, ost)| {
            let from = layout.object_offset(stripe, offset)?;
            // One that has no byte of what is looked at is not asked.
            layout.file_offset(stripe, from).filter(|first| *first < size)?;
            Some((stripe, ost, from))
        });
        let asks = places.map(|(stripe, ost, from)| {
            let ask: std::pin::Pin<Box<dyn Future<Output = _> + Send + '_>> =
                Box::pin(async move {
                    let found = self.ost_seek(ost, object_of(fid, stripe), from, hole).await?;
                    // Behind the end of an object everything is a hole.
                    let found = if hole { found.or(Some(from)) } else { found };
                    Ok(found.and_then(|found| layout.file_offset(stripe, found)))
                });
            ask
        });
        let mut next = hole.then_some(size);
        for found in join_all(asks.collect()).await {
            let found: Result<Option<u64>> = found;
            next = found?.filter(|found| *found < next.unwrap_or(size)).or(next);
        }
        Ok(next)
    }

    /// Makes everything that this client has written to a file durable on the OSTs.
    ///
    /// # Errors
    /// `EIO` if acknowledged writes may be lost, once; the OSTs' otherwise.
    pub(crate) async fn sync_own(&self, inode: &Inode, asker: Asker) -> Result<()> {
        self.sync_in_turn(inode, self.sync_objects(inode, None, asker)).await
    }

    /// Makes everything written to a regular file durable on the OSTs, by whomever.
    ///
    /// # Errors
    /// As [`Client::sync_own`].
    pub(crate) async fn sync_data(&self, inode: &Inode) -> Result<()> {
        let sync = async {
            if !lock(&inode.state).sync_all_objects() {
                return self.sync_objects(inode, None, Asker::Owner).await;
            }
            let synced = match self.layout_of(inode).await {
                Ok(layout) => self.sync_objects(inode, layout.as_deref(), Asker::Owner).await,
                Err(errno) => Err(errno),
            };
            if synced.is_err() {
                lock(&inode.state).others_wrote = true;
            }
            synced
        };
        self.sync_in_turn(inode, sync).await
    }

    /// Syncs of one inode come one after the other: each takes with it what was written until
    /// it began, also by those who then wait, and who must not return before it has, nor
    /// better than it.
    async fn sync_in_turn(
        &self,
        inode: &Inode,
        sync: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let mut since = None;
        let take_turn = |state: &mut InodeState| {
            // The one that is under way may have what is to be synced here.
            let first = *since.get_or_insert(state.sync_round + u64::from(!state.syncing));
            if state.syncing {
                return None;
            }
            state.syncing = true;
            state.sync_round += 1;
            Some((first, state.sync_round))
        };
        let (first, round) = until(&inode.state, |state| &mut state.waiters, take_turn).await;
        let turn = SyncTurn(inode);
        // Cut short it would have taken what is to be synced from others.
        let synced = to_the_end(sync).await;
        let mut state = lock(&inode.state);
        if let Err(errno) = synced {
            state.sync_failed = Some((round, errno));
        }
        let failed = state.sync_failed.filter(|(round, _)| *round >= first);
        drop(state);
        drop(turn);
        failed.map_or(Ok(()), |(_, errno)| Err(errno))
    }

    /// Syncs the objects written from here, and all others of the layout, if one is given.
    async fn sync_objects(&self, inode: &Inode, all: Option<&Layout>, asker: Asker) -> Result<()> {
        let era = self.era();
        let mark = self.unstable.mark(inode.fid);
        let (unsynced, lost) = {
            let left = self.unsynced.take(inode.fid);
            let mut state = lock(&inode.state);
            state.follow_runs(inode.fid, &self.unstable);
            state.inherit(left, &self.ended);
            let unsynced = core::mem::take(&mut state.unsynced);
            // What the kernel writes from now on is for the next sync.
            if let Some((stripe, at)) = state.given_object() {
                state.unsynced.insert(stripe, at);
                self.unstable.miss(inode.fid);
            }
            (unsynced, state.loss.tell(asker))
        };
        let mut by_ost: BTreeMap<(u32, u64), Vec<ObjectId>> = BTreeMap::new();
        for (stripe, at) in unsynced.iter() {
            let objects = by_ost.entry((at.ost, at.boot_epoch)).or_default();
            objects.push(object_of(inode.fid, *stripe));
        }
        let others = all.into_iter().flat_map(Layout::objects);
        for (stripe, ost) in others.filter(|(stripe, _)| !unsynced.has(*stripe)) {
            // What a restart has lost of others' writes is theirs to hear of.
            by_ost.entry((ost, ANY_EPOCH)).or_default().push(object_of(inode.fid, stripe));
        }
        let syncs = by_ost.into_iter().map(|((ost, boot_epoch), objects)| {
            let sync: std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> =
                Box::pin(async move {
                    if let Some(synced) = self.ost_sync(ost, &objects, boot_epoch).await {
                        if synced.is_ok() {
                            self.unstable.are_synced(ost, &objects, mark);
                        }
                        return synced;
                    }
                    // If it is this client that was thrown out, the OST has what was written,
                    // and the next sync makes it durable.
                    if era != self.era() && boot_epoch != ANY_EPOCH {
                        let mut state = lock(&inode.state);
                        let boot_epoch = self.unstable.now(inode.fid, (ost, boot_epoch));
                        for object in &objects {
                            let at = Unsynced { ost, boot_epoch };
                            state.not_synced(object.stripe, at, &self.ended);
                        }
                    }
                    Err(Errno::EIO)
                });
            sync
        });
        let failed = join_all(syncs.collect()).await.into_iter().find_map(Result::err);
        if failed.is_none() && !lost {
            self.unstable.synced(inode.fid, mark);
        } else {
            self.unstable.synced_in_part(inode.fid);
        }
        match failed {
            Some(errno) => {
                // Who is told now is not told again; as in Linux, the next fsync speaks of later
                // writes only.
                let mut loss = Loss::New;
                loss.tell(asker);
                lock(&inode.state).loss.add(loss);
                Box::pin(self.renew_given(inode, asker)).await;
                Err(errno)
            }
            None if lost => Err(Errno::EIO),
            None => Ok(()),
        }
    }

    /// The size proven by the objects of a file, and the blocks they use.
    ///
    /// # Errors
    /// The OSTs': without one of them the size is not known.
    pub(crate) async fn glimpse(&self, fid: Fid, layout: &Layout) -> Result<(u64, u64)> {
        let Proven { size, blocks, .. } = self.prove(fid, layout).await?;
        Ok((size, blocks))
    }

    /// What the objects of a file prove.
    async fn prove(&self, fid: Fid, layout: &Layout) -> Result<Proven> {
        let mut by_ost: BTreeMap<u32, Vec<ObjectId>> = BTreeMap::new();
        for (stripe, ost) in layout.objects() {
            by_ost.entry(ost).or_default().push(object_of(fid, stripe));
        }
        let asks = by_ost.into_iter().map(|(ost, objects)| {
            let ask: std::pin::Pin<Box<dyn Future<Output = _> + Send + '_>> =
                Box::pin(self.ost_getattr(ost, objects));
            ask
        });
        let mut proven = Proven::default();
        for objects in join_all(asks.collect()).await {
            for object in objects? {
                let size = layout.size_proven(object.object.stripe, object.size);
                proven.size = proven.size.max(size);
                proven.blocks += object.blocks;
                proven.mtime = proven.mtime.max(object.mtime);
            }
        }
        Ok(proven)
    }

    /// If nobody at the MDT knows a file's size, asks the OSTs and tells the MDT. `stamp` is
    /// that of the request which `attr` answers; the stamp of what is returned comes with it. The
    /// MDT is asked again with the locks that are wanted.
    ///
    /// # Errors
    /// As the requests it needs.
    pub(crate) async fn settle_size(
        &self,
        inode: &Inode,
        asked: (Attr, u64),
        want: Ibits,
    ) -> Result<(Attr, u64)> {
        // As nearly always: the rest takes much room in whatever waits for it.
        if !asked.0.size_stale || lock(&inode.state).size_known {
            return Ok(asked);
        }
        Box::pin(self.settle_stale_size(inode, asked, want)).await
    }

    async fn settle_stale_size(
        &self,
        inode: &Inode,
        (mut attr, mut stamp): (Attr, u64),
        want: Ibits,
    ) -> Result<(Attr, u64)> {
        let mut tries = 0;
        loop {
            self.wait_to_ask_again(&mut tries).await?;
            let era = self.era();
            let known = lock(&inode.state).size_known;
            if known || !attr.size_stale {
                return Ok((attr, stamp));
            }
            let layout = self.layout_since(inode, attr.layout_gen).await?;
            let proven = match &layout {
                Some(layout) => self.prove(inode.fid, layout).await?,
                None => Proven::default(),
            };
            // What the MDT has was true once, and only the MDT makes files smaller: beyond
            // what the objects prove lies a hole.
            let (size, blocks) = (attr.size.max(proven.size), proven.blocks);
            // A kernel that was given it has told nobody when it wrote. What was before the last change
            // that the MDT knows may be from before somebody has set the time.
            let is_news = self.passthrough.is_on() && proven.mtime > attr.ctime;
            let mtime = is_news.then_some(proven.mtime);
            let report = SizeReport { size, blocks, mtime, atime: None };
            let fid = inode.fid;
            let version = attr.version;
            let tell = MdtRequest::ReportSize { fid, report, glimpsed: true, version };
            let told = self.mdt_in(era, fid, tell).await;
            if told.is_err() && self.era() != era {
                // An MDT that has restarted may have given the number to another change.
                (attr, stamp) = self.fetch_attr(fid, want).await?;
                continue;
            }
            told?;
            let mut settled = Attr { size, blocks, size_stale: false, ..attr };
            if let Some(mtime) = mtime {
                (settled.mtime, settled.ctime) = (mtime, mtime);
            }
            {
                // A writer's own glimpse stands, though the mark does until its last close.
                let mut state = lock(&inode.state);
                // Of an mtime only the MDT says which ctime comes with it.
                if mtime.is_none() && state.owns_size() && state.is_news(stamp) {
                    state.learn(settled, stamp);
                    return Ok((settled, stamp));
                }
            }
            // Whoever wrote meanwhile knows better: ask once more.
            let (again, asked) = self.fetch_attr(fid, want).await?;
            if again.version == version && again.size_stale {
                return Ok((settled, asked));
            }
            (attr, stamp) = (again, asked);
        }
    }

    /// Called before each question whose answer others, or this client's own doings, may make
    /// doubtful: nobody gives up a size because it changes all the time, but from some time on
    /// the question is put less often.
    ///
    /// # Errors
    /// `EIO` after many seconds: then it is not others who get on so well, but nobody.
    pub(crate) async fn wait_to_ask_again(&self, tries: &mut u32) -> Result<()> {
        *tries += 1;
        if *tries > ASKED_MAX {
            return Err(Errno::EIO);
        }
        if *tries > ASKED_AT_ONCE {
            self.port.sleep(ASK_AGAIN_NS).await;
        }
        Ok(())
    }
}
