//! What requests are called where people look: by statistics of who sends them and by timers, in the
//! words of the field. What the field has no word for, or counts together with others, has one in
//! its manner. A request that is added has to be given a name here, or nothing compiles.

use crate::mdt::MdtRequest;
use crate::message::{Body, Request};
use crate::mgs::MgsRequest;
use crate::ost::OstRequest;

impl MdtRequest {
    /// What it is called.
    pub const fn called(&self) -> &'static str {
        match self {
            MdtRequest::GetAttr { .. } => "mds_getattr",
            MdtRequest::Lookup { .. } => "mds_getattr_lock",
            MdtRequest::Create { .. } => "mds_reint_create",
            MdtRequest::Open { .. } => "mds_open",
            MdtRequest::Close { .. } => "mds_close",
            MdtRequest::Unlink { .. } => "mds_reint_unlink",
            MdtRequest::Rename { .. } => "mds_reint_rename",
            MdtRequest::Link { .. } => "mds_reint_link",
            MdtRequest::SetAttr { .. } => "mds_reint_setattr",
            MdtRequest::ReadDir { .. } => "mds_readpage",
            MdtRequest::ReadLink { .. } => "mds_readlink",
            MdtRequest::GetXattr { .. } | MdtRequest::ListXattr { .. } => "mds_getxattr",
            MdtRequest::SetXattr { .. } | MdtRequest::RemoveXattr { .. } => "mds_reint_setxattr",
            MdtRequest::SetStripe { .. } => "mds_setstripe",
            MdtRequest::GetStripe { .. } => "mds_getstripe",
            MdtRequest::Enqueue { .. }
            | MdtRequest::EnqueueGroup { .. }
            | MdtRequest::EnqueuePart { .. } => "ldlm_enqueue",
            MdtRequest::Cancel { .. } => "ldlm_cancel",
            MdtRequest::ReportSize { .. } => "mds_report_size",
            MdtRequest::Sync { .. } => "mds_sync",
            MdtRequest::GrantSeq => "seq_query",
            MdtRequest::StatFs => "mds_statfs",
            MdtRequest::Tmpfile { .. } => "mds_tmpfile",
            MdtRequest::RenameWhiteout { .. } => "mds_rename_whiteout",
            MdtRequest::SetFileLock { .. } | MdtRequest::TestFileLock { .. } => {
                "ldlm_flock_enqueue"
            }
            MdtRequest::LeaveFileLock { .. } => "ldlm_flock_leave",
            MdtRequest::SetLayout { .. } => "mds_set_layout",
            MdtRequest::NoRoom { .. } => "mds_no_room",
            MdtRequest::Reclaim { .. } => "mds_reclaim",
            MdtRequest::ReclaimGroups { .. } => "mds_reclaim_groups",
            MdtRequest::ReclaimParts { .. } => "mds_reclaim_parts",
            MdtRequest::Replay { .. } => "mds_replay",
            MdtRequest::AnswerGlimpse { .. } => "ldlm_answer_glimpse",
            MdtRequest::GoesOn { .. } => "ldlm_goes_on",
            MdtRequest::GetLinks { .. } => "mds_getlinks",
        }
    }
}

impl OstRequest {
    /// What it is called.
    pub const fn called(&self) -> &'static str {
        match self {
            OstRequest::Read { .. } => "ost_read",
            OstRequest::Write { .. } | OstRequest::WriteMany { .. } | OstRequest::Append { .. } => {
                "ost_write"
            }
            OstRequest::GetAttr { .. } => "ost_getattr",
            OstRequest::SetSize { .. } | OstRequest::SetTimes { .. } => "ost_setattr",
            OstRequest::Punch { .. } => "ost_punch",
            OstRequest::Destroy { .. } => "ost_destroy",
            OstRequest::Sync { .. } => "ost_sync",
            OstRequest::StatFs => "ost_statfs",
            OstRequest::Allocate { .. } | OstRequest::ZeroRange { .. } => "ost_fallocate",
            OstRequest::Seek { .. } => "ost_seek",
            OstRequest::List { .. } | OstRequest::Alone { .. } => "ost_get_info",
            OstRequest::Fence { .. } => "ost_fence",
        }
    }
}

impl MgsRequest {
    /// What it is called.
    pub const fn called(&self) -> &'static str {
        match self {
            MgsRequest::Register { .. } | MgsRequest::Replace { .. } => "mgs_target_reg",
            MgsRequest::SetParam { .. } => "mgs_set_info",
            MgsRequest::GetFileSystem => "mgs_get_info",
            MgsRequest::GetConfig | MgsRequest::GetParams => "mgs_config_read",
            MgsRequest::WaitConfig { .. } => "ldlm_enqueue",
        }
    }
}

impl Request {
    /// What it is called.
    pub const fn called(&self) -> &'static str {
        match self {
            Request::Connect { .. } => "obd_connect",
            Request::Disconnect => "obd_disconnect",
            Request::Ping => "obd_ping",
            Request::Mdt(request) => request.called(),
            Request::Ost(request) => request.called(),
            Request::Mgs(request) => request.called(),
        }
    }
}

impl Body {
    /// What it is called; messages that ask for nothing by what they are.
    pub const fn called(&self) -> &'static str {
        match self {
            Body::Request(request) => request.called(),
            Body::Reply(_) => "reply",
            Body::Callback(_) => "callback",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Callback, Reply, ReplyBody};

    #[test]
    fn messages_are_called_as_in_the_field() {
        for (body, called) in [
            (Body::Request(Request::Ping), "obd_ping"),
            (Body::Request(Request::Mdt(MdtRequest::StatFs)), "mds_statfs"),
            (Body::Request(Request::Ost(OstRequest::StatFs)), "ost_statfs"),
            (Body::Request(Request::Mgs(MgsRequest::GetConfig)), "mgs_config_read"),
            (Body::Reply(Reply::ok(ReplyBody::Empty)), "reply"),
            (Body::Callback(Callback::Evicted), "callback"),
        ] {
            assert_eq!(body.called(), called);
        }
    }
}
