/*
 * The module mw_cuda.so itself: nothing but a unit to link the backend's
 * archive into. What it exports: mw_cuda.map.
 */
#include "exec/cuda/mw_cuda.h"
