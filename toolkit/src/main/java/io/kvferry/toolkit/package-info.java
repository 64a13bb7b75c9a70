// SPDX-License-Identifier: Apache-2.0
@NullMarked
package io.kvferry.toolkit;

import org.jspecify.annotations.NullMarked;
