// SPDX-License-Identifier: Apache-2.0
/// What plugins look for on a machine when they answer [io.kvferry.spi.Plugin#diagnose].
@NullMarked
package io.kvferry.toolkit.doctor;

import org.jspecify.annotations.NullMarked;
