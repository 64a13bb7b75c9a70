// SPDX-License-Identifier: Apache-2.0
/// The messages of MooncakeConnector on its two control channels: msgpack between decoder and
/// prefiller, the ZeroMQ sockets that carry them, and the bootstrap HTTP service by which decoders
/// find prefillers. Nothing here knows of blocks, requests or transfers beyond their wire form.
@NullMarked
package io.kvferry.backend.mooncake.p2p.wire;

import org.jspecify.annotations.NullMarked;
