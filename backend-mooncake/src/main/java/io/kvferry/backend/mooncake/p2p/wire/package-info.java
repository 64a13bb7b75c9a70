// SPDX-License-Identifier: Apache-2.0
/// The messages of MooncakeConnector between decoder and prefiller, in msgpack, in each of vLLM's
/// generations. Nothing here knows of blocks, requests or transfers beyond their wire form.
@NullMarked
package io.kvferry.backend.mooncake.p2p.wire;

import org.jspecify.annotations.NullMarked;
