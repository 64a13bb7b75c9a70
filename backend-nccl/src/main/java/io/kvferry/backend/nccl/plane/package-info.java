// SPDX-License-Identifier: Apache-2.0
/// The data plane: moves the bytes of one transfer from the blocks of a sender into a window that a
/// receiver opened for it.
@NullMarked
package io.kvferry.backend.nccl.plane;

import org.jspecify.annotations.NullMarked;
