//! Black-box tests, fault tests and benchmarks of the program.
