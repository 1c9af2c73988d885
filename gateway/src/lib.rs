//! The HTTP side of Farthing: the forward proxy and the REST interface.
