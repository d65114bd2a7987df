//! A secret's file as Kubernetes mounts it: a link into a folder that another link names, and that link is replaced at
//! once.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

pub struct Mounted {
    dir: tempfile::TempDir,
    version: u32,
}

impl Mounted {
    pub fn new(value: &str) -> Self {
        let mut mounted = Self {
            dir: tempfile::tempdir().unwrap(),
            version: 0,
        };
        symlink("..data/value", mounted.dir.path().join("value")).unwrap();
        mounted.replace(value);
        mounted
    }

    pub fn path(&self) -> String {
        self.dir.path().join("value").display().to_string()
    }

    /// Another folder in place of the current one, which goes.
    pub fn replace(&mut self, value: &str) {
        let old = self.folder();
        self.version += 1;
        fs::create_dir(self.folder()).unwrap();
        fs::write(self.folder().join("value"), value).unwrap();
        let (link, new_link) = (
            self.dir.path().join("..data"),
            self.dir.path().join("..new"),
        );
        symlink(self.folder(), &new_link).unwrap();
        fs::rename(new_link, link).unwrap();
        if self.version > 1 {
            fs::remove_dir_all(old).unwrap();
        }
    }

    /// The link leads nowhere.
    pub fn remove(&self) {
        fs::remove_file(self.folder().join("value")).unwrap();
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join(format!("..{}", self.version))
    }
}
