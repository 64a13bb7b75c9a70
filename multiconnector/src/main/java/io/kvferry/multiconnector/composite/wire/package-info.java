// SPDX-License-Identifier: Apache-2.0
/// What the two halves of a composite, which may be in different processes, say to each other, and
/// the names that both give to the transfers of children.
@NullMarked
package io.kvferry.multiconnector.composite.wire;

import org.jspecify.annotations.NullMarked;
