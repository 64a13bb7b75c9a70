// SPDX-License-Identifier: Apache-2.0
/// C libraries that a machine may lack, such as NCCL and Mooncake's: found at run time, with the
/// reason and the remedy when they are not there.
@NullMarked
package io.kvferry.toolkit.natives;

import org.jspecify.annotations.NullMarked;
