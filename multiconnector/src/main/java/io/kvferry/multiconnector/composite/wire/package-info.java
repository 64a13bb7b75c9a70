// SPDX-License-Identifier: Apache-2.0
/// Messages between the two halves of a composite, which may be in different processes, and the
/// names that both give to the transfers of children.
@NullMarked
package io.kvferry.multiconnector.composite.wire;

import org.jspecify.annotations.NullMarked;
