// SPDX-License-Identifier: Apache-2.0
/// The data planes of a worker of MooncakeConnector: its own transfer engine, which writes into a
/// decoder's memory, or transfer backends of the host, by which a decoder reads; and the KV memory
/// that is registered with them.
@NullMarked
package io.kvferry.backend.mooncake.p2p.plane;

import org.jspecify.annotations.NullMarked;
