//! A small disk of a test's own: a file system in memory.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::left_out;

/// Keeps the disk until stdin closes: the test has ended, or its process.
const KEEPER: &str = r#"
mount -t tmpfs -o "size=$1,mode=755" farthing-test "$2" || exit 1
echo mounted
read -r _
umount -l "$2"
"#;

/// A disk that is mounted until the value is dropped.
pub struct SmallDisk {
    keeper: Child,
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts one of so many bytes at a new folder. `None` if the user may not mount: then this says that the test is left
    /// out.
    pub fn mount(bytes: u64, folder: &Path) -> Option<Self> {
        std::fs::create_dir(folder).expect("a folder can be made");
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper", &bytes.to_string()])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh can be run");
        let mut said = String::new();
        let stdout = keeper.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut said).expect("its output can be read");
        if said != "mounted\n" {
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            left_out(&format!("{test}: a small disk cannot be mounted, which needs root"));
            let _ = keeper.wait();
            return None;
        }
        Some(Self { keeper, folder: folder.to_owned() })
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Fills it until at most `percent` of it are free. An earlier filling is replaced.
    pub fn fill(&self, percent: u64) {
        let file = self.folder.join("filling");
        let _ = std::fs::remove_file(&file);
        let mut filling = File::create(&file).expect("a file can be made");
        let piece = vec![1; 1024 * 1024];
        while self.free_percent() > percent {
            filling.write_all(&piece).expect("there is space");
        }
    }

    fn free_percent(&self) -> u64 {
        let output = Command::new("df")
            .args(["--block-size=1", "--output=avail,size"])
            .arg(&self.folder)
            .output()
            .expect("df can be run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [free, all] = numbers[..] else { panic!("df: {text}") };
        free * 100 / all
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
