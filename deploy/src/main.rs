//! The one program: every role of Farthing is a subcommand.

fn main() {}
