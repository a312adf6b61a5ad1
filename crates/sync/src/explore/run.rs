//! Running a body under one schedule.

use super::outcome::{Options, Outcome};
use super::scheduler::{Scheduler, current};
use std::sync::Once;

/// Runs `body` and the threads that it starts under one schedule, until all have ended.
///
/// A panic, a deadlock, a thread that is left behind and a livelock fail the run.
pub fn run(options: Options, body: impl FnOnce() + Send + 'static) -> Outcome {
    install_hook();
    let scheduler = Scheduler::new(options);
    super::thread::start(&scheduler, "main".into(), None, body).expect("a thread of the system");
    scheduler.finish_run()
}

/// A panic in a thread of a run ends the run.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let Some((scheduler, me)) = current() else {
                return default(info);
            };
            let mut message = format!("thread {me}: {info}");
            if std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v == "full") {
                message += &format!("\n{}", std::backtrace::Backtrace::force_capture());
            }
            // The hook is called under a lock of the standard library's, so the thread cannot stay
            // here.
            scheduler.end_as_failed(message);
        }));
    });
}
