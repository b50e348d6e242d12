//! Targets of symbolic links and extended attributes that were asked for stay with their inode, so that
//! the next who asks costs no request.
//!
//! **They live as long as the locks on the inode's names and attributes**, all of them: a target cannot
//! change, but its link can be removed; extended attributes stand under `XATTR`, but a chmod, which
//! changes an ACL, takes `PERM`. This client's own changes of the inode drop them as well. What may go
//! otherwise is not kept: the capability of a file, which the next write takes away.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use sateen_types::{Errno, Result};
use sateen_wire::Ibits;

use crate::inode::{Inode, InodeState};
use crate::sync::lock;

/// Inodes of which something is kept, at most; those that have been there for longest go for others.
const INODES_MAX: usize = 16_384;
/// Answers that are kept of one.
const ANSWERS_MAX: usize = 8;
/// Longest of them.
const ANSWER_BYTES_MAX: usize = 1024;
/// What a program may do whoever runs it.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question<'a> {
    /// The target of a symbolic link.
    Target,
    /// The names of all extended attributes.
    Names,
    /// The value of one of them.
    Value(&'a [u8]),
}

/// The same, to be kept.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Target,
    Names,
    Value(Box<[u8]>),
}

impl Asked {
    fn is(&self, question: Question<'_>) -> bool {
        match (self, question) {
            (Asked::Target, Question::Target) | (Asked::Names, Question::Names) => true,
            (Asked::Value(own), Question::Value(name)) => **own == *name,
            _ => false,
        }
    }
}

/// What is kept of an inode; without bytes there is no such attribute.
#[derive(Debug)]
pub(crate) struct KeptXattrs {
    answers: Vec<(Asked, Option<Bytes>)>,
    /// How many of them there are.
    of: Arc<AtomicUsize>,
}

impl Drop for KeptXattrs {
    fn drop(&mut self) {
        self.of.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All of a client.
#[derive(Debug, Default)]
pub(crate) struct XattrCache {
    kept: Arc<AtomicUsize>,
    /// In the order in which they came; some are gone since.
    order: Mutex<VecDeque<Weak<Inode>>>,
}

/// Whether an answer may be kept. That there is no capability stays so until somebody sets one.
fn is_to_be_kept(question: Question<'_>, answer: Option<&Bytes>) -> bool {
    let Some(bytes) = answer else { return true };
    let goes = match question {
        Question::Target => false,
        Question::Names => bytes.split(|byte| *byte == 0).any(|name| name == CAPABILITY),
        Question::Value(name) => name == CAPABILITY,
    };
    !goes && bytes.len() <= ANSWER_BYTES_MAX
}

impl XattrCache {
    /// A request sent at `stamp` was answered.
    pub(crate) fn keep(
        &self,
        inode: &Arc<Inode>,
        (question, answer): (Question<'_>, &Result<Bytes>),
        stamp: u64,
    ) {
        let answer = match answer {
            Ok(bytes) => Some(bytes.clone()),
            Err(Errno::ENODATA) if matches!(question, Question::Value(_)) => None,
            Err(_) => return,
        };
        if !is_to_be_kept(question, answer.as_ref()) {
            return;
        }
        {
            let mut state = lock(&inode.state);
            if !state.is_news(stamp) || !state.stands(Ibits::META, stamp) || state.nameless {
                return;
            }
            let is_new = state.xattrs.is_none();
            let xattrs = state.xattrs.get_or_insert_with(|| {
                self.kept.fetch_add(1, Ordering::Relaxed);
                Box::new(KeptXattrs { answers: Vec::new(), of: self.kept.clone() })
            });
            xattrs.answers.retain(|(asked, _)| !asked.is(question));
            if xattrs.answers.len() >= ANSWERS_MAX {
                xattrs.answers.remove(0);
            }
            let asked = match question {
                Question::Target => Asked::Target,
                Question::Names => Asked::Names,
                Question::Value(name) => Asked::Value(name.into()),
            };
            // A part of a message would keep all of it in memory.
            let answer = answer.map(|bytes| Bytes::copy_from_slice(&bytes));
            xattrs.answers.push((asked, answer));
            if !is_new {
                return;
            }
        }
        self.make_room(inode);
    }

    /// Of one more inode something is kept: the oldest go, if that is too much.
    fn make_room(&self, inode: &Arc<Inode>) {
        let mut too_many = Vec::new();
        {
            let mut order = lock(&self.order);
            order.push_back(Arc::downgrade(inode));
            let gone = order.len().saturating_sub(2 * INODES_MAX);
            let surplus = self.kept.load(Ordering::Relaxed).saturating_sub(INODES_MAX).max(gone);
            let surplus = surplus.min(order.len());
            too_many.extend(order.drain(..surplus));
        }
        for inode in too_many.iter().filter_map(Weak::upgrade) {
            lock(&inode.state).drop_xattrs();
        }
    }
}

impl InodeState {
    /// What is kept does not hold any more.
    pub(crate) fn drop_xattrs(&mut self) {
        if let Some(rare) = self.rare_if_any() {
            rare.xattrs = None;
        }
    }

    /// An answer that is kept, and stands.
    pub(crate) fn kept_answer(&self, question: Question<'_>) -> Option<Result<Bytes>> {
        let kept = self.xattrs.as_ref().filter(|_| self.covers(Ibits::META))?;
        let (_, answer) = kept.answers.iter().find(|(asked, _)| asked.is(question))?;
        Some(answer.clone().ok_or(Errno::ENODATA))
    }
}
