//! Attributes that no file has and every file answers: how tools ask a mount about striping
//! and space, without any other connection to it.

use sateen_client::{Client, TargetSpace, TargetState};
use sateen_types::{Errno, Fid, Result, StripePolicy};
use sateen_wire::codec::{Input, Wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Get: layout, or the OSTs that a directory names, policy, and the file system's own policy,
/// encoded. Set: an encoded policy.
pub const STRIPE_XATTR: &str = "sateen.stripe";
/// Set: an encoded stripe size and the OSTs, one for each stripe.
pub const OSTS_XATTR: &str = "sateen.osts";
/// Get: the targets of the file system as JSON, rows of [`TargetRow`].
pub const TARGETS_XATTR: &str = "sateen.targets";
/// Get: the same, after each was asked whether it is there.
pub const CHECK_XATTR: &str = "sateen.check";
/// Get, with a FID behind it and for root alone: under which names that inode stands, as a
/// link-EA.
pub const LINKS_XATTR: &str = "sateen.links.";
/// Get: the targets' space as JSON, rows of [`SpaceRow`].
pub const SPACE_XATTR: &str = "sateen.space";
/// Get: the same, but only those that there is a connection to are asked.
pub const CONNECTED_SPACE_XATTR: &str = "sateen.space.connected";
/// Set: everything written on the mount becomes durable. The kernel does not tell FUSE of
/// `syncfs` and `sync`.
pub const SYNC_XATTR: &str = "sateen.sync";

/// One target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRow {
    /// For instance `OST0003`.
    pub target: String,
    /// Whether it is in use.
    pub active: bool,
    /// Whether there is a connection to it, or, if it was asked, whether it has answered.
    pub connected: bool,
}

/// Space of one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceRow {
    /// For instance `OST0003`.
    pub target: String,
    /// Whether it is in use.
    pub active: bool,
    /// Whether it answers; the numbers are 0 if not.
    pub answers: bool,
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes free.
    pub bytes_free: u64,
    /// Bytes available to users.
    pub bytes_avail: u64,
    /// Inodes or objects in all.
    pub files_total: u64,
    /// Inodes or objects free.
    pub files_free: u64,
}

pub(crate) async fn get(
    client: &Arc<Client>,
    fid: Fid,
    (name, uid): (&[u8], u32),
) -> Option<Result<Vec<u8>>> {
    if name == STRIPE_XATTR.as_bytes() {
        return Some(client.getstripe(fid).await.map(|striping| {
            let mut out = striping.layout.to_vec();
            striping.policy.put(&mut out);
            striping.default.put(&mut out);
            out
        }));
    }
    if name == SPACE_XATTR.as_bytes() {
        return Some(space(client, client.target_spaces().await));
    }
    if name == CONNECTED_SPACE_XATTR.as_bytes() {
        return Some(space(client, client.connected_spaces().await));
    }
    if name == TARGETS_XATTR.as_bytes() {
        return Some(rows(client.target_states()));
    }
    if name == CHECK_XATTR.as_bytes() {
        return Some(rows(client.check_targets().await));
    }
    let named = name.strip_prefix(LINKS_XATTR.as_bytes())?;
    if uid != 0 {
        // Names in folders that not everybody may read.
        return Some(Err(Errno::EPERM));
    }
    let named = core::str::from_utf8(named).ok().and_then(|text| text.parse().ok());
    Some(match named {
        Some(named) => client.links(named).await.map(Vec::from),
        None => Err(Errno::EINVAL),
    })
}

fn rows(states: Vec<TargetState>) -> Result<Vec<u8>> {
    let row = |TargetState { target, active, connected }: TargetState| TargetRow {
        target: target.to_string(),
        active,
        connected,
    };
    let rows: Vec<TargetRow> = states.into_iter().map(row).collect();
    serde_json::to_vec(&rows).map_err(|_| Errno::EIO)
}

fn space(client: &Client, spaces: Vec<TargetSpace>) -> Result<Vec<u8>> {
    let states = client.target_states();
    let out_of_use = |target| states.iter().any(|state| state.target == target && !state.active);
    let rows: Vec<SpaceRow> = spaces
        .into_iter()
        .map(|row| {
            let space = row.space.unwrap_or_default();
            SpaceRow {
                target: row.target.to_string(),
                active: !out_of_use(row.target),
                answers: row.space.is_some(),
                bytes_total: space.bytes_total,
                bytes_free: space.bytes_free,
                bytes_avail: space.bytes_avail,
                files_total: space.files_total,
                files_free: space.files_free,
            }
        })
        .collect();
    serde_json::to_vec(&rows).map_err(|_| Errno::EIO)
}

/// Sets one, for a program of user `uid`; `None` if it is an attribute like others.
///
/// # Errors
/// `EPERM` for what is only shown, and for striping if the file or directory is another user's:
/// whoever may make files in a directory for all must not say where those of others lie.
pub(crate) async fn set(
    client: &Arc<Client>,
    (fid, uid): (Fid, u32),
    name: &[u8],
    value: &[u8],
) -> Option<Result<()>> {
    let stripes = [STRIPE_XATTR, OSTS_XATTR].map(str::as_bytes).contains(&name);
    if stripes && let Err(errno) = require_owner(client, fid, uid).await {
        return Some(Err(errno));
    }
    if name == STRIPE_XATTR.as_bytes() {
        let policy = StripePolicy::from_bytes(value).map_err(|_| Errno::EINVAL);
        return Some(match policy {
            Ok(policy) => client.setstripe(fid, policy).await,
            Err(errno) => Err(errno),
        });
    }
    if name == OSTS_XATTR.as_bytes() {
        let mut input = Input::new(value);
        let both = Wire::take(&mut input).and_then(|size| Ok((size, Wire::take(&mut input)?)));
        return Some(match both {
            Ok((size, osts)) => client.setlayout(fid, size, osts).await,
            Err(_) => Err(Errno::EINVAL),
        });
    }
    if name == SYNC_XATTR.as_bytes() {
        return Some(client.sync_all().await);
    }
    let read_only = [SPACE_XATTR, CONNECTED_SPACE_XATTR, TARGETS_XATTR, CHECK_XATTR];
    let read_only = read_only.map(str::as_bytes);
    (read_only.contains(&name) || name.starts_with(LINKS_XATTR.as_bytes()))
        .then_some(Err(Errno::EPERM))
}

async fn require_owner(client: &Arc<Client>, fid: Fid, uid: u32) -> Result<()> {
    // Which capabilities a program has the kernel does not tell.
    if uid == 0 || client.getattr(fid).await?.attr.uid == uid { Ok(()) } else { Err(Errno::EPERM) }
}
