//! The candidates behind one face: what the metadata store asks of an index.

use std::ops::Bound;
use std::path::Path;

use anyhow::{Result, bail};
use fjall::Readable as _;
use redb::ReadableDatabase as _;
use sateen_osd::Index as _;
use sateen_osd_disk::index::{DiskIndex, IndexOptions};

pub(crate) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// Bytes of keys and values written per batch, where an engine takes batches.
const CHUNK: usize = 4 << 20;
const LSN: &[u8] = &[0];

pub(crate) trait Engine: Send + Sync {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    fn scan(&self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;
    /// All changes and the sequence number durable on return.
    fn checkpoint(&self, lsn: u64, changes: &mut dyn Iterator<Item = Change<'_>>) -> Result<()>;
    fn lsn(&self) -> Result<Option<u64>> {
        Ok(match self.get(LSN)? {
            Some(v) => Some(u64::from_le_bytes(v.as_slice().try_into()?)),
            None => None,
        })
    }
    fn note(&self) -> String {
        String::new()
    }
    /// Takes the engine's locks as a read does, without I/O.
    fn touch_locks(&self) {}
}

pub(crate) fn open(name: &str, dir: &Path, cache: u64) -> Result<Box<dyn Engine>> {
    Ok(match name {
        "lsm" => Box::new(Lsm(DiskIndex::open(
            dir,
            IndexOptions { cache_bytes: cache, ..IndexOptions::default() },
        )?)),
        "fjall" => Box::new(Fjall::open(dir, cache)?),
        "redb" => Box::new(Redb::open(dir, cache)?),
        other => bail!("no engine {other}: lsm, fjall, redb"),
    })
}

/// lsm-tree through this crate's own index: a checkpoint is one ingestion.
struct Lsm(DiskIndex);

impl Engine for Lsm {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get_bytes(key)?.map(|v| v.to_vec()))
    }
    fn scan(&self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.0.scan_bytes(Bound::Included(from), Bound::Excluded(to), |k, v| {
            each(k, v);
            true
        })?;
        Ok(())
    }
    fn checkpoint(&self, lsn: u64, changes: &mut dyn Iterator<Item = Change<'_>>) -> Result<()> {
        Ok(self.0.write(lsn, changes.map(|(key, value)| (key.into(), value)))?)
    }
    fn touch_locks(&self) {
        std::hint::black_box(self.0.disk_bytes());
    }
    fn lsn(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.checkpointed()))
    }
    fn note(&self) -> String {
        format!("size {} MB", self.0.disk_bytes() / 1_000_000)
    }
}

/// fjall as it comes: batches through its own journal, persisted at the end.
struct Fjall {
    db: fjall::Database,
    keys: fjall::Keyspace,
}

impl Fjall {
    fn open(dir: &Path, cache: u64) -> Result<Self> {
        let db = fjall::Database::builder(dir)
            .cache_size(cache)
            .worker_threads(2)
            .max_journaling_size(128 << 20)
            .open()?;
        let keys = db.keyspace("meta", || {
            fjall::KeyspaceCreateOptions::default().max_memtable_size(32 << 20)
        })?;
        Ok(Self { db, keys })
    }
}

impl Engine for Fjall {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.keys.get(key)?.map(|v| v.to_vec()))
    }
    fn scan(&self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for item in self.db.snapshot().range(&self.keys, from..to) {
            let (k, v) = item.into_inner()?;
            each(&k, &v);
        }
        Ok(())
    }
    fn checkpoint(&self, lsn: u64, changes: &mut dyn Iterator<Item = Change<'_>>) -> Result<()> {
        let mut changes = changes.peekable();
        loop {
            let mut batch = self.db.batch();
            let mut bytes = 0;
            while bytes < CHUNK
                && let Some((key, value)) = changes.next()
            {
                bytes += key.len() + value.map_or(0, <[u8]>::len);
                match value {
                    Some(value) => batch.insert(&self.keys, key, value),
                    None => batch.remove(&self.keys, key),
                }
            }
            let last = changes.peek().is_none();
            if last {
                batch.insert(&self.keys, LSN, lsn.to_le_bytes());
            }
            batch.commit()?;
            if last {
                return Ok(self.db.persist(fjall::PersistMode::SyncData)?);
            }
        }
    }
    fn note(&self) -> String {
        format!("size {} MB", self.keys.disk_space() / 1_000_000)
    }
}

const TABLE: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("meta");

struct Redb(redb::Database);

impl Redb {
    fn open(dir: &Path, cache: u64) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let db = redb::Database::builder()
            .set_cache_size(usize::try_from(cache)?)
            .create(dir.join("redb"))?;
        let tx = db.begin_write()?;
        tx.open_table(TABLE)?;
        tx.commit()?;
        Ok(Self(db))
    }
}

impl Engine for Redb {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        Ok(table.get(key)?.map(|v| v.value().to_vec()))
    }
    fn scan(&self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        for item in table.range(from..to)? {
            let (k, v) = item?;
            each(k.value(), v.value());
        }
        Ok(())
    }
    fn checkpoint(&self, lsn: u64, changes: &mut dyn Iterator<Item = Change<'_>>) -> Result<()> {
        let mut changes = changes.peekable();
        loop {
            let mut tx = self.0.begin_write()?;
            let mut bytes = 0;
            let mut table = tx.open_table(TABLE)?;
            while bytes < CHUNK
                && let Some((key, value)) = changes.next()
            {
                bytes += key.len() + value.map_or(0, <[u8]>::len);
                match value {
                    Some(value) => drop(table.insert(key, value)?),
                    None => drop(table.remove(key)?),
                }
            }
            let last = changes.peek().is_none();
            if last {
                table.insert(LSN, lsn.to_le_bytes().as_slice())?;
            }
            drop(table);
            if last {
                // Without it, opening after a crash walks the whole tree.
                tx.set_quick_repair(true);
            } else {
                tx.set_durability(redb::Durability::None)?;
            }
            tx.commit()?;
            if last {
                return Ok(());
            }
        }
    }
}
