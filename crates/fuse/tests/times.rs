//! Access times.

mod common;

use common::{Image, can_mount, run};
use testkit::needs::{Need, have};
use testkit::oracle::Mke2fs;

/// Prints which access times different accesses change: those of a file, a directory and a link.
const ACCESSES: &str = r#"
    make() {
        rm -rf file dir link copy
        echo '#!/bin/true' > file; chmod 755 file; mkdir dir; touch dir/in; ln -s file link
        touch -h -m -d @200 file dir link; touch -h -a -d @"$1" file dir link
    }
    look() {
        echo "$1: $(stat -c '%n %X' file dir link | sed 's/ [0-9]\{6,\}$/ now/' | tr '\n' ' ')"
    }
    open() { python3 -c "
import mmap, os, sys
file = os.open('file', os.O_RDONLY | eval(sys.argv[1])); eval(sys.argv[2])" "$@"; }
    accesses() {
        make "$1"; cat file; ls dir; readlink link; look read
        make "$1"; cat link; look "read by link"
        make "$1"; open os.O_NOATIME 'os.read(file, 5)'; look O_NOATIME
        make "$1"; open os.O_NOATIME 'os.sendfile(1, file, 0, 2)'; look "O_NOATIME, sendfile"
        make "$1"; open 0 'os.sendfile(1, file, 0, 2)'; look sendfile
        make "$1"; open 0 'os.copy_file_range(file, os.open("copy", 66), 2)'; look copy
        make "$1"; chattr +A file dir; cat file; ls dir; look chattr; chattr -A file dir
        make "$1"; cat file; touch -a -d @100 file; cat file; look "read again"
        make "$1"; cat file; sleep 0.02; echo true >> file; sleep 0.02; cat file
        test "$(stat -c %.9X file)" \> "$(stat -c %.9Y file)" && echo read || echo not read
        make "$1"; ./file; stat link > /dev/null; test -r file; look run
    }
    accesses 100
    accesses $(date +%s)000 | sed 's/ [0-9]\{10,\}/ new/g'
"#;

#[test]
fn accesses_change_the_times_that_they_change_on_ext4() {
    if !can_mount() || !have("the kernel's ext4", &[Need::Loop]) {
        return;
    }
    for option in ["relatime", "relatime,nodiratime", "noatime"] {
        let image = Image::of(&Mke2fs::by_default(64 << 20));
        let by_kernel = image.copy().with_kernel(option, |dir| run(dir, ACCESSES));
        let mounted = image.mount(option);
        let ours = mounted.run(ACCESSES);
        mounted.unmount();
        assert_eq!(Some(ours), by_kernel, "{option}");
    }
}
