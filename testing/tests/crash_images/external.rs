//! Crash images of volumes with a journal on a device of its own. Each of both devices loses and
//! tears the writes since its own last flush, independently of the other one.

use super::*;

workloads! { @form external_journal, AsyncCommit::Never;
    creating: Work::create_fsync, Volume::External(&[]);
    overwriting: Work::overwrite_fsync, Volume::External(&[]);
    appending: Work::append, Volume::External(&[]);
    truncating: Work::truncate, Volume::External(&[]);
    rewriting: Work::rewrite, Volume::External(&[]);
    preallocating: Work::preallocate, Volume::External(&[]);
    reusing_freed_blocks: Work::reuse, Volume::External(&[]);
    replacing_without_fsync: Work::rename_over_without_fsync, Volume::External(&[]);
    unlinking: Work::unlink, Volume::External(&[]);
    wrapping_around: Work::wrap_around, Volume::External(&[]);
    syncing_in_bulk: Work::fsyncs_in_bulk, Volume::External(&[]);
    threads_syncing_in_every_way: Work::every_way_at_once, Volume::External(&[]);
    data_through_the_log: Work::logged_data, Volume::External(&[]);
    overwriting_what_is_in_the_log: Work::overwritten_by_the_flusher, Volume::External(&[]);
    reusing_what_is_in_the_log: Work::freed_from_the_log, Volume::External(&[]);
}

workloads! { @form external_journal_async_commit, AsyncCommit::Always;
    creating: Work::create_fsync, Volume::External(&[]);
    appending: Work::append, Volume::External(&[]);
    reusing_freed_blocks: Work::reuse, Volume::External(&[]);
    wrapping_around: Work::wrap_around, Volume::External(&[]);
    syncing_in_bulk: Work::fsyncs_in_bulk, Volume::External(&[]);
    data_through_the_log: Work::logged_data, Volume::External(&[]);
}

mod external_journal_of_1_kib_blocks {
    use super::*;

    workloads! { @each crash, external_journal_of_1_kib_blocks, AsyncCommit::Adaptive, 1024;
        creating: Work::create_fsync, Volume::External(&["-O", "^metadata_csum,^64bit"]);
        appending: Work::append, Volume::External(&["-O", "^metadata_csum,^64bit"]);
        wrapping_around: Work::wrap_around, Volume::External(&["-O", "^metadata_csum,^64bit"]);
        data_through_the_log: Work::logged_data, Volume::External(&["-O", "^metadata_csum,^64bit"]);
    }
}
