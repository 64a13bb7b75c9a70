// SPDX-License-Identifier: Apache-2.0
/// Which bytes of a prefiller's memory go where in a decoder's: pairs of ranks, heads, layers and
/// blocks as plans and ranges. Nothing here moves a byte.
@NullMarked
package io.kvferry.backend.mooncake.p2p.copy;

import org.jspecify.annotations.NullMarked;
