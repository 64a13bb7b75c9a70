// SPDX-License-Identifier: Apache-2.0
/// The worker half of a composite on one rank.
@NullMarked
package io.kvferry.multiconnector.composite.worker;

import org.jspecify.annotations.NullMarked;
